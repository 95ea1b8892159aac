// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	"github.com/spdx/tools-golang/spdx/v2/v2_3"
)

const noAssertion = "NOASSERTION"

// billOfMaterials returns the software bill of materials of a binary in SPDX 2.3, as JSON: all
// modules that the Go linker says are in it, and Go's own library.
func billOfMaterials(s source, platform *v1.Platform, file string) ([]byte, error) {
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return nil, err
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(content)
	digest := hex.EncodeToString(sum[:])

	program := packageOf("tierlimit", module, s.version)
	program.PrimaryPackagePurpose = "APPLICATION"
	program.PackageChecksums = []common.Checksum{{Algorithm: common.SHA256, Value: digest}}
	program.PackageComment = "The checksum is that of " + entrypoint + " in the image for " + platform.String() + "."
	program.PackageLicenseDeclared = license
	document := &v2_3.Document{
		SPDXVersion:       v2_3.Version,
		DataLicense:       v2_3.DataLicense,
		SPDXIdentifier:    "DOCUMENT",
		DocumentName:      "tierlimit " + s.version + " for " + platform.String(),
		DocumentNamespace: "https://" + module + "/spdx/" + digest,
		CreationInfo: &v2_3.CreationInfo{
			Creators: []common.Creator{{CreatorType: "Tool", Creator: module + "/hack/image"}},
			Created:  s.created.Format(time.RFC3339),
		},
		Packages: []*v2_3.Package{program},
		Relationships: []*v2_3.Relationship{{
			RefA: common.MakeDocElementID("", "DOCUMENT"), RefB: common.MakeDocElementID("", string(program.PackageSPDXIdentifier)), Relationship: "DESCRIBES",
		}},
	}
	library := packageOf("go", "stdlib", strings.TrimPrefix(info.GoVersion, "go"))
	library.PackageLicenseDeclared = "BSD-3-Clause"
	dependencies := []*v2_3.Package{library}
	for i, dependency := range info.Deps {
		dependencies = append(dependencies, packageOfModule(fmt.Sprintf("module-%d", i), dependency))
	}
	for _, dependency := range dependencies {
		document.Packages = append(document.Packages, dependency)
		document.Relationships = append(document.Relationships, &v2_3.Relationship{
			RefA: common.MakeDocElementID("", string(program.PackageSPDXIdentifier)), RefB: common.MakeDocElementID("", string(dependency.PackageSPDXIdentifier)), Relationship: "DEPENDS_ON",
		})
	}
	var out bytes.Buffer
	if err := spdxjson.Write(document, &out, spdxjson.Indent("  ")); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func packageOfModule(id string, m *debug.Module) *v2_3.Package {
	if m.Replace != nil {
		m = m.Replace
	}
	p := packageOf(id, m.Path, m.Version)
	p.PackageComment = "go.sum: " + m.Sum
	return p
}

// packageOf describes a module. The identifier is unique within the document.
func packageOf(id, path, version string) *v2_3.Package {
	return &v2_3.Package{
		PackageName:             path,
		PackageSPDXIdentifier:   common.ElementID("Package-" + id),
		PackageVersion:          version,
		PackageDownloadLocation: noAssertion,
		PackageLicenseConcluded: noAssertion,
		PackageLicenseDeclared:  noAssertion,
		PackageCopyrightText:    noAssertion,
		PackageExternalReferences: []*v2_3.PackageExternalReference{{
			Category: common.CategoryPackageManager, RefType: common.TypePackageManagerPURL, Locator: packageURL(path, version),
		}},
	}
}

// packageURL names a module as scanners know it (https://github.com/package-url/purl-spec).
func packageURL(path, version string) string {
	return "pkg:golang/" + strings.ToLower(path) + "@" + strings.ReplaceAll(version, "+", "%2B")
}
