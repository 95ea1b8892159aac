// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package tierfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// maxFileSize bounds what is read of one file, in bytes. It is about what the API server takes for
// one object; a tier has about 300.
const maxFileSize = 1 << 20

// file is one file of the directory.
type file struct {
	path  string
	seen  content    // by the last look
	taken content    // what good and err are of
	good  []declared // the last good tiers
	err   error      // what is wrong with what was taken; nil if nothing is
	read  bool       // whether anything was taken yet
	gone  bool       // the last look did not find it
}

// content is what a look at a file has found: its text, or why it could not be read.
type content struct {
	text    string
	problem string
}

// take reads the tiers of a content. If anything is wrong with it, the last good tiers stay.
func (f *file) take(c content, v *validator) {
	f.seen, f.taken, f.read = c, c, true
	if c.problem != "" {
		f.err = fmt.Errorf("%s:1: %s", f.path, c.problem)
		return
	}
	var tiers []declared
	if tiers, f.err = v.parse(f.path, []byte(c.text)); f.err == nil {
		f.good = tiers
	}
}

// look reads a file.
func look(path string) content {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return content{problem: withoutPath(err)}
	case !info.Mode().IsRegular(): // a pipe would be waited for, for ever
		return content{problem: "not a file"}
	case info.Size() > maxFileSize:
		return content{problem: fmt.Sprintf("%d bytes, but a file of tiers may have %d", info.Size(), maxFileSize)}
	}
	text, err := os.ReadFile(path) //nolint:gosec // G304: the directory is the operator's choice
	if err != nil {
		return content{problem: withoutPath(err)}
	}
	return content{text: string(text)}
}

// withoutPath shortens "open a.yaml: permission denied".
func withoutPath(err error) string {
	if pathErr := (*os.PathError)(nil); errors.As(err, &pathErr) {
		return pathErr.Err.Error()
	}
	return err.Error()
}

// list returns the paths of the files to read, ordered by name.
func list(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, entry := range entries {
		name := entry.Name()
		extension := filepath.Ext(name)
		if extension != ".yaml" && extension != ".yml" || strings.HasPrefix(name, ".") || strings.TrimSuffix(name, extension) == "kustomization" {
			continue
		}
		paths = append(paths, filepath.Join(dir, name))
	}
	return paths, nil
}
