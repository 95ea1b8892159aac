// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// example is a name to push to.
const example = "registry.example/tierlimit:v0.1.0"

// push sends what build has made to a registry, under a name, with the bills of materials. It logs in
// as docker and podman do, by ~/.docker/config.json.
func push(ctx context.Context, from, to string, stdout io.Writer) error {
	if to == "" {
		return errors.New("IMAGE (-to) is missing: give the name in your registry with a tag: make image-push IMAGE=" + example)
	}
	tag, err := name.NewTag(to, name.StrictValidation)
	if err != nil {
		return fmt.Errorf("IMAGE (-to) is %q, which is no name in a registry with a tag (%w): write make image-push IMAGE=%s", to, err, example)
	}
	index, err := layout.ImageIndexFromPath(filepath.Join(from, layoutDir))
	if err != nil {
		return fmt.Errorf("there is no image in %s: %w: run 'make image' first", from, err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return err
	}
	if len(manifest.Manifests) == 0 {
		return fmt.Errorf("there is no image in %s: a build of it did not end: run 'make image' first", from)
	}
	options := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	for _, descriptor := range manifest.Manifests {
		if descriptor.MediaType.IsIndex() {
			image, err := index.ImageIndex(descriptor.Digest)
			if err != nil {
				return err
			}
			if err := remote.WriteIndex(tag, image, options...); err != nil {
				return fmt.Errorf("pushing %s: %w", tag, err)
			}
			fmt.Fprintf(stdout, "%s@%s\n", tag, descriptor.Digest)
			continue
		}
		bill, err := index.Image(descriptor.Digest)
		if err != nil {
			return err
		}
		if err := remote.Write(tag.Digest(descriptor.Digest.String()), bill, options...); err != nil {
			return fmt.Errorf("pushing the bill of materials of %s: %w", tag, err)
		}
	}
	return nil
}
