// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tierlimit/tierlimit/internal/tier"
)

// LoadedPath is where a replica answers which of some tiers it does not have in force.
const LoadedPath = "/loaded"

// maxLoadedBytes bounds a question and an answer.
const maxLoadedBytes = 1 << 20

// tierRef names one generation of a tier. The UID tells tiers from earlier ones of the same name.
type tierRef struct {
	Name       string `json:"name"`
	UID        string `json:"uid"`
	Generation int64  `json:"generation"`
}

func (t tierRef) uid() types.UID { return types.UID(t.UID) }

// loadedQuestion asks a replica whether it has tiers in force.
type loadedQuestion struct {
	Tiers []tierRef `json:"tiers"`
}

// loadedAnswer is what it says.
type loadedAnswer struct {
	// Asked is how many tiers it was asked about. It tells the answer from that of something else.
	Asked int `json:"asked"`
	// Lacking are the names of the tiers that it does not have in force: in that generation or a later one.
	Lacking []string `json:"lacking,omitempty"`
	// Disabled is whether RATE_LIMIT_DISABLED is set in it.
	Disabled bool `json:"disabled,omitempty"`
}

// answered is a loadedAnswer that fits its question.
type answered struct {
	lacks    map[string]bool // of each tier that was asked about, by its name
	disabled bool
}

// LoadedHandler answers [LoadedPath] for a replica with this table, in which RATE_LIMIT_DISABLED is
// set or not. Whoever asks learns nothing about a tier that they cannot name with its UID.
func LoadedHandler(table *tier.Table, disabled bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, "use POST", http.StatusMethodNotAllowed)
			return
		}
		if !table.Ready() {
			http.Error(w, "the tiers have not been loaded yet", http.StatusServiceUnavailable)
			return
		}
		question, err := readQuestion(http.MaxBytesReader(w, r.Body, maxLoadedBytes))
		if err != nil {
			code := http.StatusBadRequest
			if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
				code = http.StatusRequestEntityTooLarge
			}
			http.Error(w, err.Error(), code)
			return
		}
		answer := loadedAnswer{Asked: len(question.Tiers), Disabled: disabled}
		for _, asked := range question.Tiers {
			if t := table.Lookup(asked.Name); t == nil || t.UID != asked.UID || t.Generation < asked.Generation {
				answer.Lacking = append(answer.Lacking, asked.Name)
			}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer) // whoever asked has gone
	})
}

// readQuestion reads one question and nothing else.
func readQuestion(body io.Reader) (loadedQuestion, error) {
	decoder := json.NewDecoder(body)
	decoder.DisallowUnknownFields()
	var question loadedQuestion
	if err := readOne(decoder, &question); err != nil {
		return loadedQuestion{}, fmt.Errorf("the question cannot be read: %w", err)
	}
	return question, nil
}

// readAnswer reads one answer to a question and nothing else. Fields that are not known may be those of
// a newer replica.
func readAnswer(body io.Reader, question loadedQuestion) (answered, error) {
	var answer loadedAnswer
	if err := readOne(json.NewDecoder(body), &answer); err != nil {
		return answered{}, err
	}
	if answer.Asked != len(question.Tiers) {
		return answered{}, fmt.Errorf("it speaks of %d tiers and was asked about %d", answer.Asked, len(question.Tiers))
	}
	lacks := make(map[string]bool, len(question.Tiers))
	for i := range question.Tiers {
		lacks[question.Tiers[i].Name] = false
	}
	for _, name := range answer.Lacking {
		if _, asked := lacks[name]; !asked {
			return answered{}, errors.New("it speaks of a tier that it was not asked about")
		}
		lacks[name] = true
	}
	return answered{lacks: lacks, disabled: answer.Disabled}, nil
}

// readOne reads one value and nothing behind it.
func readOne(decoder *json.Decoder, value any) error {
	if err := decoder.Decode(value); err != nil {
		return err
	}
	_, err := decoder.Token()
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case err == nil:
		return errors.New("there is more behind it")
	}
	return err
}
