// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// The report stands between these lines; what is around them is written by hand and stays.
const (
	beginMark = "<!-- bench:begin -->"
	endMark   = "<!-- bench:end -->"
)

// write puts the report into performance.md of a directory, and the picture beside it.
func write(dir, report string, r *results) error {
	path := filepath.Join(dir, "performance.md")
	page, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		page, err = []byte("# Performance\n\n"+beginMark+"\n"+endMark+"\n"), nil
	}
	if err != nil {
		return err
	}
	renewed, err := between(string(page), report)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	picture, err := draw(r.bars())
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, []byte(renewed), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "performance.svg"), []byte(picture), 0o644)
}

// between replaces what stands between the marks of a page.
func between(page, report string) (string, error) {
	before, rest, begun := strings.Cut(page, beginMark)
	_, after, ended := strings.Cut(rest, endMark)
	if !begun || !ended {
		return "", fmt.Errorf("the lines %s and %s are missing, in this order", beginMark, endMark)
	}
	return before + beginMark + "\n\n" + strings.TrimSpace(report) + "\n\n" + endMark + after, nil
}
