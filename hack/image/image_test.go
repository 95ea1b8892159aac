// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"debug/elf"
	"errors"
	"io"
	"io/fs"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdxlib"
)

// clone copies the sources into a folder of their own and makes one commit of them, which is the same
// commit wherever they are.
func clone(t *testing.T) string {
	t.Helper()
	_, file, _, _ := runtime.Caller(0)
	root := filepath.Join(filepath.Dir(file), "..", "..")
	dir := filepath.Join(t.TempDir(), strings.ToLower(filepath.Base(t.Name())))
	// Whatever git has or would take, so that a new folder is not forgotten here.
	listed, err := exec.Command("git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	for part := range strings.SplitSeq(strings.TrimSuffix(string(listed), "\x00"), "\x00") {
		from, to := filepath.Join(root, part), filepath.Join(dir, part)
		content, err := os.ReadFile(from)
		if errors.Is(err, fs.ErrNotExist) { // deleted, and not committed yet
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, content, info.Mode().Perm()); err != nil {
			t.Fatal(err)
		}
	}
	git := func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=Test", "-c", "user.email=test@example.com", "-c", "core.autocrlf=false", "-c", "commit.gpgsign=false", "-c", "tag.gpgsign=false"}, args...)...)
		cmd.Env = append(os.Environ(), "GIT_AUTHOR_DATE=2026-11-30T10:34:22+01:00", "GIT_COMMITTER_DATE=2026-11-30T10:34:22+01:00", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
		if output, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, output)
		}
	}
	git("init", "-q")
	git("add", "-A")
	git("commit", "-q", "-m", "All")
	git("tag", "v0.9.0")
	return dir
}

// makeTarget runs make in a clone, as a person would.
func makeTarget(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("make", append([]string{"-C", dir}, args...)...)
	for _, variable := range os.Environ() { // a make that runs this test says what it was told
		if name, _, _ := strings.Cut(variable, "="); name != "MAKEFLAGS" && name != "MFLAGS" && name != "VERSION" && name != "IMAGE" && name != "SOURCE_DATE_EPOCH" {
			cmd.Env = append(cmd.Env, variable)
		}
	}
	output, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("make %v: %v\n%s", args, err, output)
	}
	return string(output)
}

// TestImage makes the image twice, in two folders, and looks at all that a registry then has of it.
func TestImage(t *testing.T) {
	dir, other := clone(t), clone(t)
	makeTarget(t, dir, "image")
	makeTarget(t, other, "image", "PLATFORMS=linux/amd64")

	server := httptest.NewServer(registry.New(registry.WithReferrersSupport(true), registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	makeTarget(t, dir, "image-push", "IMAGE="+host+"/tierlimit:v0.9.0")
	makeTarget(t, other, "image-push", "IMAGE="+host+"/other:v0.9.0")
	images := pull(t, host+"/tierlimit:v0.9.0")
	if len(images) != 2 || images["linux/amd64"] == nil || images["linux/arm64"] == nil {
		t.Fatalf("the platforms are %v", images)
	}
	digest := func(image v1.Image) string {
		d, err := image.Digest()
		if err != nil {
			t.Fatal(err)
		}
		return d.String()
	}
	if one, two := digest(images["linux/amd64"]), digest(pull(t, host+"/other:v0.9.0")["linux/amd64"]); one != two {
		t.Errorf("two builds of one commit are two images: %s and %s", one, two)
	}
	machines := map[string]elf.Machine{"linux/amd64": elf.EM_X86_64, "linux/arm64": elf.EM_AARCH64}
	for platform, image := range images {
		t.Run(filepath.Base(platform), func(t *testing.T) {
			checkConfig(t, image, filepath.Base(platform))
			checkBinary(t, image, machines[platform])
			checkBill(t, host+"/tierlimit", digest(image))
			archive, err := tarball.ImageFromPath(filepath.Join(dir, "bin", "image", "tierlimit-linux-"+filepath.Base(platform)+".tar"), nil)
			if err != nil {
				t.Fatal(err)
			}
			want, _ := image.ConfigName()
			if got, err := archive.ConfigName(); err != nil || got != want {
				t.Errorf("the archive for docker load has the image %s, %v, want %s", got, err, want)
			}
		})
	}
	if output, err := exec.Command(filepath.Join(dir, "bin", "image", "tierlimit-linux-"+runtime.GOARCH), "version").CombinedOutput(); err != nil ||
		!strings.Contains(string(output), "v0.9.0\n") || !strings.Contains(string(output), "2026-11-30T09:34:22Z") {
		t.Errorf("version: %v\n%s", err, output)
	}
}

// pull returns the images of an index by platform.
func pull(t *testing.T, reference string) map[string]v1.Image {
	t.Helper()
	tag, err := name.NewTag(reference)
	if err != nil {
		t.Fatal(err)
	}
	index, err := remote.Index(tag)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	images := map[string]v1.Image{}
	for _, descriptor := range manifest.Manifests {
		image, err := index.Image(descriptor.Digest)
		if err != nil {
			t.Fatal(err)
		}
		images[descriptor.Platform.String()] = image
	}
	return images
}

func checkConfig(t *testing.T, image v1.Image, architecture string) {
	t.Helper()
	file, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if file.OS != "linux" || file.Architecture != architecture || !file.Created.Equal(time.Date(2026, 11, 30, 9, 34, 22, 0, time.UTC)) {
		t.Errorf("%s/%s of %v", file.OS, file.Architecture, file.Created)
	}
	revision := file.Config.Labels["org.opencontainers.image.revision"]
	if len(revision) != 40 {
		t.Errorf("the revision is %q", revision)
	}
	want := v1.Config{
		User:         "65532:65532",
		Entrypoint:   []string{"/tierlimit"},
		WorkingDir:   "/",
		ExposedPorts: map[string]struct{}{"8080/tcp": {}, "8081/tcp": {}, "8443/tcp": {}, "9001/tcp": {}},
		Labels: map[string]string{
			"org.opencontainers.image.title":       "tierlimit",
			"org.opencontainers.image.description": "Rate limits by RateLimitTiers, for the ingress of a Kubernetes cluster",
			"org.opencontainers.image.version":     "v0.9.0",
			"org.opencontainers.image.revision":    revision,
			"org.opencontainers.image.source":      "https://github.com/tierlimit/tierlimit",
			"org.opencontainers.image.licenses":    "Apache-2.0",
		},
	}
	if diff := cmp.Diff(want, file.Config); diff != "" {
		t.Errorf("the configuration (-want +got):\n%s", diff)
	}
}

// checkBinary looks at the only file of an image: static, for the machine, of a bounded size.
func checkBinary(t *testing.T, image v1.Image, machine elf.Machine) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "image.tar")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := io.Copy(file, mutate.Extract(image)); err != nil {
		t.Fatal(err)
	}
	listing, err := exec.Command("tar", "-tf", path).Output()
	if err != nil || strings.TrimSpace(string(listing)) != "tierlimit" {
		t.Fatalf("the image holds %q, %v", listing, err)
	}
	if output, err := exec.Command("tar", "-xf", path, "-C", filepath.Dir(path)).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	binary, err := elf.Open(filepath.Join(filepath.Dir(path), "tierlimit"))
	if err != nil {
		t.Fatal(err)
	}
	defer binary.Close()
	if binary.Machine != machine {
		t.Errorf("the binary is for %v, want %v", binary.Machine, machine)
	}
	libraries, _ := binary.ImportedLibraries()
	for _, program := range binary.Progs {
		if program.Type == elf.PT_INTERP || len(libraries) > 0 {
			t.Errorf("the binary is not static: %v %v", program.Type, libraries)
		}
	}
	layers, _ := image.Layers()
	const most = 30 << 20
	if size, err := layers[0].Size(); err != nil || size > most {
		t.Errorf("the image has %d bytes, %v: more than %d", size, err, most)
	}
}

// checkBill asks the registry what refers to an image.
func checkBill(t *testing.T, repository, digest string) {
	t.Helper()
	reference, err := name.NewDigest(repository + "@" + digest)
	if err != nil {
		t.Fatal(err)
	}
	referrers, err := remote.Referrers(reference)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := referrers.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Manifests) != 1 || manifest.Manifests[0].ArtifactType != string(billType) {
		t.Fatalf("referring to the image: %+v", manifest.Manifests)
	}
	artifact, err := remote.Image(reference.Digest(manifest.Manifests[0].Digest.String()))
	if err != nil {
		t.Fatal(err)
	}
	layers, err := artifact.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%v, %v", layers, err)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	document, err := spdxjson.Read(content)
	if err != nil {
		t.Fatal(err)
	}
	if err := spdxlib.ValidateDocument(document); err != nil {
		t.Error(err)
	}
	found := map[string]string{}
	for _, p := range document.Packages {
		found[p.PackageName] = p.PackageExternalReferences[0].Locator
	}
	for name, want := range map[string]string{
		module:                         "pkg:golang/github.com/tierlimit/tierlimit@v0.9.0",
		"stdlib":                       "pkg:golang/stdlib@" + strings.TrimPrefix(runtime.Version(), "go"),
		"github.com/redis/go-redis/v9": "pkg:golang/github.com/redis/go-redis/v9@v",
	} {
		if !strings.HasPrefix(found[name], want) {
			t.Errorf("%s is %q in the bill of materials, want %s", name, found[name], want)
		}
	}
	if len(found) != len(document.Packages) || len(found) < 50 {
		t.Errorf("%d packages with %d names", len(document.Packages), len(found))
	}
}

func TestCreationTime(t *testing.T) {
	for name, tc := range map[string]struct{ reason, commitTime, epoch, want string }{
		"Commit":  {"what git says", "2026-11-30T10:34:22+01:00", "", "2026-11-30T09:34:22Z"},
		"Epoch":   {"whoever sets it decides", "2026-11-30T10:34:22+01:00", "86400", "1970-01-02T00:00:00Z"},
		"Neither": {"sources without git: never now", "", "", "1970-01-01T00:00:00Z"},
		"NoEpoch": {"a mistake ends the build", "", "today", ""},
		"NoTime":  {"a mistake ends the build", "today", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := creationTime(tc.commitTime, tc.epoch)
			if (err != nil) != (tc.want == "") || err == nil && got.Format(time.RFC3339) != tc.want {
				t.Errorf("%v, %v, want %q: %s", got, err, tc.want, tc.reason)
			}
		})
	}
}
