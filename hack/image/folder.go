// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// replaceable returns an error if a folder holds something other than an image, because a build
// replaces all of it.
func replaceable(out string) error {
	entries, err := os.ReadDir(out)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("-out: %w", err)
	}
	if _, err := os.Stat(filepath.Join(out, layoutDir)); err != nil {
		return fmt.Errorf("-out: %s has files and no image, and all of it would be replaced: name a folder for the image alone", out)
	}
	return nil
}

// replace puts a finished folder in the place of another. A folder cannot be renamed onto one that is
// not empty, so the old one is renamed too, and comes back if the new one cannot take its place.
func replace(out, finished string) error {
	old := filepath.Clean(out) + ".old"
	if err := os.RemoveAll(old); err != nil {
		return err
	}
	err := os.Rename(out, old)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Rename(finished, out); err != nil {
		return errors.Join(err, os.Rename(old, out))
	}
	return os.RemoveAll(old)
}
