// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// source is what the image is built from.
type source struct {
	root       string // folder with go.mod
	version    string // "v0.1.0"
	revision   string // the commit; "" if it is not known
	commitTime string // RFC 3339; "" if it is not known
	created    time.Time
}

// layoutDir is the OCI image layout in the folder of the image.
const layoutDir = "oci"

// build puts into a folder: the image for all platforms as an OCI image layout, with a software bill
// of materials for each that refers to it; for each platform an archive for docker load; and the
// bills of materials as files. What is in the folder is replaced at the end and not before, so that an
// earlier image survives a build that fails or is interrupted.
func build(ctx context.Context, s source, platforms []*v1.Platform, out, tag string, stdout io.Writer) error {
	reference, err := name.NewTag(tag)
	if err != nil {
		return fmt.Errorf("-name: %w", err)
	}
	if err := replaceable(out); err != nil {
		return err
	}
	staging := filepath.Clean(out) + ".unfinished"
	if err := os.RemoveAll(staging); err != nil { // of a build that was killed
		return err
	}
	defer os.RemoveAll(staging) //nolint:errcheck // the next build removes it too
	if err := os.MkdirAll(staging, 0o750); err != nil {
		return err
	}
	digest, err := buildAll(ctx, s, platforms, staging, reference, stdout)
	if err != nil {
		return err
	}
	if err := replace(out, staging); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%s: %s\n", filepath.Join(out, layoutDir), digest)
	return nil
}

// buildAll fills an empty folder, and returns the digest of the image for all platforms.
func buildAll(ctx context.Context, s source, platforms []*v1.Platform, out string, reference name.Tag, stdout io.Writer) (v1.Hash, error) {
	path, err := layout.Write(filepath.Join(out, layoutDir), empty.Index)
	if err != nil {
		return v1.Hash{}, err
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	var bills []v1.Image
	for _, platform := range platforms {
		fmt.Fprintf(stdout, "building %s ...\n", platform)
		image, bill, err := buildFor(ctx, s, platform, out, reference, stdout)
		if err != nil {
			return v1.Hash{}, err
		}
		bills = append(bills, bill)
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: platform}})
	}
	index = mutate.Annotations(index, s.labels()).(v1.ImageIndex)
	if err := path.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": reference.TagStr()})); err != nil {
		return v1.Hash{}, err
	}
	for _, bill := range bills {
		if err := path.AppendImage(bill); err != nil {
			return v1.Hash{}, err
		}
	}
	digest, err := index.Digest()
	if err != nil {
		return v1.Hash{}, err
	}
	return digest, os.WriteFile(filepath.Join(out, "digest"), []byte(digest.String()+"\n"), 0o600)
}

// buildFor makes the image for one platform and its bill of materials, and writes what is not part of
// the layout.
func buildFor(ctx context.Context, s source, platform *v1.Platform, out string, reference name.Tag, stdout io.Writer) (image, bill v1.Image, err error) {
	file := filepath.Join(out, "tierlimit-"+platform.OS+"-"+platform.Architecture)
	if err := compile(ctx, s, platform, file); err != nil {
		return nil, nil, err
	}
	if image, err = imageOf(s, platform, file); err != nil {
		return nil, nil, err
	}
	content, err := billOfMaterials(s, platform, file)
	if err != nil {
		return nil, nil, err
	}
	if err := os.WriteFile(file+".spdx.json", content, 0o600); err != nil {
		return nil, nil, err
	}
	if bill, err = attach(content, image); err != nil {
		return nil, nil, err
	}
	if err := tarball.WriteToFile(file+".tar", reference, image); err != nil {
		return nil, nil, err
	}
	return image, bill, report(stdout, platform, file, image)
}

// compile makes the static binary. The same sources and the same Go make the same bytes, in
// whichever folder they are and whatever the environment says.
func compile(ctx context.Context, s source, platform *v1.Platform, file string) error {
	absolute, err := filepath.Abs(file)
	if err != nil {
		return err
	}
	ldflags := "-s -w -X main.stamped=" + s.version
	if s.revision != "" {
		ldflags += " -X main.stampedRevision=" + s.revision + " -X main.stampedTime=" + s.commitTime
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", ldflags, "-o", absolute, "./cmd/tierlimit")
	cmd.Dir = s.root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+platform.OS, "GOARCH="+platform.Architecture,
		"GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=-mod=readonly", "GOWORK=off", "GOEXPERIMENT=")
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building for %s: %w\n%s", platform, err, strings.TrimSpace(string(output)))
	}
	return nil
}

// report says how large an image is.
func report(stdout io.Writer, platform *v1.Platform, file string, image v1.Image) error {
	binary, err := os.Stat(file)
	if err != nil {
		return err
	}
	layers, err := image.Layers()
	if err != nil {
		return err
	}
	compressed, err := layers[0].Size()
	if err != nil {
		return err
	}
	digest, err := image.Digest()
	if err != nil {
		return err
	}
	const mega = 1e6
	fmt.Fprintf(stdout, "%s: binary %.1f MB, compressed %.1f MB, %s\n", platform, float64(binary.Size())/mega, float64(compressed)/mega, digest)
	return nil
}
