// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package desk

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tierlimit/tierlimit/internal/adminapi"
)

// change is a command that changes something, and so asks before.
type change struct {
	d       *desk
	subject subjectFlags
	output  output
	yes     bool
}

func (c *change) add(command *cobra.Command) {
	c.subject.add(command)
	c.output.add(command, formatJSON, formatYAML)
	command.Flags().BoolVarP(&c.yes, "yes", "y", false, "do not ask for confirmation")
}

// errNotConfirmed is the answer of whoever was asked.
var errNotConfirmed = errors.New("nothing was changed")

// confirmable returns an error if nobody can be asked and there is no --yes. It is called before
// anything is asked of a replica.
func (d *desk) confirmable(yes bool) error {
	if yes || terminal(d.Streams.In) {
		return nil
	}
	return usagef("there is no terminal to ask for confirmation on: give --yes if you are sure")
}

// confirm asks on the terminal.
func (d *desk) confirm(ctx context.Context, yes bool, question string) error {
	if yes {
		return nil
	}
	fmt.Fprintf(d.Streams.ErrOut, "%s [y/N] ", question)
	answers := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(d.Streams.In).ReadString('\n') // the end of the input is a no
		answers <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case answer := <-answers:
		if answer == "y" || answer == "yes" {
			return nil
		}
	case <-ctx.Done():
		fmt.Fprintln(d.Streams.ErrOut)
	}
	return errNotConfirmed
}

// show prints what get shows of the subject, and returns it, before a question. Whoever may change a
// budget may not always see it; then it returns nil, and the question stands alone.
func (c *change) show(ctx context.Context, all *replicas, query url.Values) (*adminapi.Quota, error) {
	if c.yes {
		return nil, nil
	}
	var quota adminapi.Quota
	_, err := all.one(ctx, request{http.MethodGet, adminapi.PathQuota, query}, &quota)
	var answer *refused
	switch {
	case errors.As(err, &answer) && answer.status == http.StatusForbidden:
		c.d.warn("you may not see what is left of the user's budget (ClusterRole %s)", roleOf(answer.request))
		return nil, nil
	case err != nil:
		return nil, err
	}
	if err := printQuota(c.d.Streams.ErrOut, quota, false); err != nil {
		return nil, err
	}
	fmt.Fprintln(c.d.Streams.ErrOut)
	return &quota, nil
}

// everywhere says by when all replicas know of a change.
func everywhere(milliseconds int64) string {
	if milliseconds <= 0 {
		return "Every replica knows it now."
	}
	return fmt.Sprintf("Every replica knows it within %v.", time.Duration(milliseconds)*time.Millisecond)
}

// audit says where a change can be found again.
func audit(id, tier string) string {
	return fmt.Sprintf("Audit ID %s (in the log and, in a cluster, in the Events of the tier %s).", printable(id), named(tier))
}
