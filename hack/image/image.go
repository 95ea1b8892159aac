// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"os"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	// user is who the process is: nobody in particular, and not root.
	user = "65532:65532"

	// entrypoint is the only file in the image.
	entrypoint = "/tierlimit"

	module = "github.com/tierlimit/tierlimit"

	// license is the SPDX identifier of Tierlimit's license.
	license = "Apache-2.0"

	// billType is the media type of a bill of materials.
	billType types.MediaType = "application/spdx+json"
)

// labels describe the image, by the names of the OCI image specification.
func (s source) labels() map[string]string {
	labels := map[string]string{
		"org.opencontainers.image.title":       "tierlimit",
		"org.opencontainers.image.description": "Rate limits by RateLimitTiers, for the ingress of a Kubernetes cluster",
		"org.opencontainers.image.source":      "https://" + module,
		"org.opencontainers.image.licenses":    license,
		"org.opencontainers.image.version":     s.version,
	}
	if s.revision != "" {
		labels["org.opencontainers.image.revision"] = s.revision
	}
	return labels
}

// imageOf returns the image for one platform, around a binary.
func imageOf(s source, platform *v1.Platform, file string) (v1.Image, error) {
	layer, err := layerOf(s, file)
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	created := v1.Time{Time: s.created}
	image, err = mutate.Append(image, mutate.Addendum{Layer: layer, History: v1.History{Created: created, CreatedBy: "make image"}})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = platform.OS, platform.Architecture, created
	config.Config = v1.Config{
		User:         user,
		Entrypoint:   []string{entrypoint},
		WorkingDir:   "/",
		ExposedPorts: map[string]struct{}{"8080/tcp": {}, "8081/tcp": {}, "8443/tcp": {}, "9001/tcp": {}},
		Labels:       s.labels(),
	}
	return mutate.ConfigFile(image, config)
}

// layerOf returns a layer with the binary and nothing else.
func layerOf(s source, file string) (v1.Layer, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	header := tar.Header{Name: entrypoint[1:], Typeflag: tar.TypeReg, Mode: 0o555, Size: int64(len(content)), ModTime: s.created, Format: tar.FormatUSTAR}
	if err := w.WriteHeader(&header); err != nil {
		return nil, err
	}
	if _, err := w.Write(content); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(
		func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.BestCompression), tarball.WithCompressedCaching)
}

// attach returns a bill of materials as an artifact whose subject is the image.
func attach(bill []byte, image v1.Image) (v1.Image, error) {
	subject, err := partial.Descriptor(image)
	if err != nil {
		return nil, err
	}
	artifact := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), billType)
	artifact, err = mutate.AppendLayers(artifact, static.NewLayer(bill, billType))
	if err != nil {
		return nil, err
	}
	return mutate.Subject(artifact, *subject).(v1.Image), nil
}
