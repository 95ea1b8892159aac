// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package tierfile

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestHotReload(t *testing.T) {
	f := follow(t, map[string]string{"a.yaml": plain("free", 5)})
	f.inForce(t, "free=5")
	f.write(t, "a.yaml", plain("free", 60))
	f.inForce(t, "free=60")
	f.write(t, "b.yaml", plain("pro", 600))
	f.inForce(t, "free=60 pro=600")
	f.remove(t, "a.yaml")
	f.inForce(t, "pro=600")
	f.remove(t, "b.yaml")
	f.inForce(t, "")
	f.write(t, "c.yaml", plain("free", 7))
	f.inForce(t, "free=7")
}

// TestBrokenFileKeepsItsTiers breaks one file while another one changes.
func TestBrokenFileKeepsItsTiers(t *testing.T) {
	f := follow(t, map[string]string{"a.yaml": plain("free", 5), "b.yaml": plain("pro", 60)})
	f.write(t, "a.yaml", plain("free", -1))
	f.write(t, "b.yaml", plain("pro", 61))
	f.inForce(t, "free=5 pro=61")
	f.logged(t, "a.yaml:7: spec.requests.perMinute", 1)
	time.Sleep(5 * pollInterval)
	f.logged(t, "a.yaml:7: spec.requests.perMinute", 1) // not on every look

	f.write(t, "b.yaml", plain("pro", 62)) // read again, with the same fault in the other
	f.inForce(t, "free=5 pro=62")
	f.logged(t, "a.yaml:7: spec.requests.perMinute", 1)

	f.write(t, "a.yaml", plain("free", 6))
	f.inForce(t, "free=6 pro=62")
}

func TestDuplicateKeepsWhatIsInForce(t *testing.T) {
	f := follow(t, map[string]string{"b.yaml": plain("free", 5)})
	f.write(t, "a.yaml", plain("free", 50)) // first by name, but not in force
	f.logged(t, "is declared in", 1)
	f.inForce(t, "free=5")
	f.remove(t, "b.yaml")
	f.inForce(t, "free=50")
}

// TestMountedConfigMap changes files as the kubelet does: by switching a link to a directory.
func TestMountedConfigMap(t *testing.T) {
	dir := t.TempDir()
	version := func(name, content string) {
		t.Helper()
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, "tiers.yaml"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		link := filepath.Join(dir, "..data_tmp")
		if err := os.Symlink(name, link); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(link, filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	version("..2026_01_01", plain("free", 5))
	if err := os.Symlink(filepath.Join("..data", "tiers.yaml"), filepath.Join(dir, "tiers.yaml")); err != nil {
		t.Fatal(err)
	}
	f := newFollowed(t, dir)
	f.start(t)
	f.inForce(t, "free=5")
	version("..2026_01_02", plain("free", 6))
	f.inForce(t, "free=6")
}

func TestDirectoryRemovedAndMadeAgain(t *testing.T) {
	f := newFollowed(t, filepath.Join(t.TempDir(), "tiers"))
	if err := os.Mkdir(f.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	f.write(t, "a.yaml", plain("free", 5))
	f.start(t)
	if err := os.RemoveAll(f.dir); err != nil {
		t.Fatal(err)
	}
	f.logged(t, "no such file or directory", 1)
	time.Sleep(5 * pollInterval)
	f.logged(t, "no such file or directory", 1)
	f.inForce(t, "free=5") // the last good ones

	next := t.TempDir() // complete before it is put in place
	if err := os.WriteFile(filepath.Join(next, "a.yaml"), []byte(plain("free", 6)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, f.dir); err != nil {
		t.Fatal(err)
	}
	f.inForce(t, "free=6")
}

func TestUnreadableFile(t *testing.T) {
	f := follow(t, map[string]string{"a.yaml": plain("free", 5), "b.yaml": plain("pro", 60)})
	path := filepath.Join(f.dir, "a.yaml")

	for name, tc := range map[string]struct {
		reason string
		make   func() error
		log    string
	}{
		"Dangling link": {"a link to nothing", func() error { return os.Symlink("nothing", path) }, "no such file or directory"},
		"Directory":     {"a directory by that name", func() error { return os.Mkdir(path, 0o700) }, "a.yaml:1: not a file"},
		"Pipe":          {"reading it would wait for ever", func() error { return syscall.Mkfifo(path, 0o600) }, "a.yaml:1: not a file"},
	} {
		t.Run(name, func(t *testing.T) {
			f.remove(t, "a.yaml")
			if err := tc.make(); err != nil {
				t.Fatal(err)
			}
			f.write(t, "b.yaml", plain("pro", 61))
			f.inForce(t, "free=5 pro=61")
			eventually(t, func() error {
				if !strings.Contains(f.log.String(), tc.log) {
					return fmt.Errorf("%s: %q is not in the log:\n%s", tc.reason, tc.log, &f.log)
				}
				return nil
			})
			f.remove(t, "a.yaml")
			f.write(t, "a.yaml", plain("free", 5))
			f.write(t, "b.yaml", plain("pro", 60))
			f.inForce(t, "free=5 pro=60")
		})
	}
}

// TestPermissionsMended makes a file readable again without changing it.
func TestPermissionsMended(t *testing.T) {
	if os.Geteuid() == 0 { // who may read everything
		const nobody = 65534
		if err := syscall.Seteuid(nobody); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = syscall.Seteuid(0) })
	}
	f := follow(t, map[string]string{"a.yaml": plain("free", 5)})
	f.write(t, "a.yaml", plain("free", 6))
	path := filepath.Join(f.dir, "a.yaml")
	if err := os.Chmod(path, 0); err != nil {
		t.Fatal(err)
	}
	f.logged(t, "permission denied", 1)
	f.inForce(t, "free=5")
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	f.inForce(t, "free=6")
}

// TestExpiryIsLogged has a kill switch expire while no file changes.
func TestExpiryIsLogged(t *testing.T) {
	until := time.Now().Add(2 * time.Second).UTC().Format(time.RFC3339)
	f := follow(t, map[string]string{"a.yaml": plain("free", 5) +
		"  killSwitch: {engaged: true, reason: Redis migration, expiresAt: \"" + until + "\"}\n"})
	f.logged(t, "kill switch expired at "+until, 1)
}

// TestReplacedByATwin replaces a file by one of the same size and time, as rsync -a may.
func TestReplacedByATwin(t *testing.T) {
	f := follow(t, map[string]string{"a.yaml": plain("free", 5)})
	path := filepath.Join(f.dir, "a.yaml")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	f.write(t, "a.yaml", plain("free", 6))
	if err := os.Chtimes(path, info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
	f.inForce(t, "free=6")
}

// TestRestlessFile writes one file all the time: the others do not wait for it.
func TestRestlessFile(t *testing.T) {
	f := follow(t, map[string]string{"a.yaml": plain("free", 5), "b.yaml": plain("pro", 60)})
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for i := 10; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(pollInterval / 4):
				_ = os.WriteFile(filepath.Join(f.dir, "a.yaml"), []byte(plain("free", i)), 0o600)
			}
		}
	}()
	f.write(t, "b.yaml", plain("pro", 61))
	eventually(t, func() error {
		if got := f.table.Lookup("pro").Limits[0].Requests; got != 61 {
			return fmt.Errorf("pro is %d while another file is being written", got)
		}
		return nil
	})
	close(stop)
	<-stopped
	f.write(t, "a.yaml", plain("free", 7))
	f.inForce(t, "free=7 pro=61")
}

// TestUnreadableAndRemoved removes a file that could not be read, and with it its tiers.
func TestUnreadableAndRemoved(t *testing.T) {
	f := follow(t, map[string]string{"a.yaml": plain("free", 5)})
	f.remove(t, "a.yaml")
	if err := os.Symlink("nowhere", filepath.Join(f.dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	f.logged(t, "a.yaml:1: no such file or directory", 1)
	f.inForce(t, "free=5")
	f.remove(t, "a.yaml")
	f.inForce(t, "")
}

// TestMovedTier moves a tier from one file to another, slowly: it is in force all the time.
func TestMovedTier(t *testing.T) {
	f := follow(t, map[string]string{"a.yaml": plain("free", 5) + "---\n" + plain("gold", 50), "b.yaml": plain("pro", 60)})
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				if f.table.Lookup("gold") == nil {
					t.Error("gold is not in force while it moves")
					return
				}
			}
		}
	}()
	for i := range 4 {
		from, to := plain("free", 5), plain("pro", 60)
		if i%2 == 1 {
			from, to = to, from
		}
		f.write(t, []string{"a.yaml", "b.yaml"}[i%2], from)
		time.Sleep(time.Duration(i) * pollInterval / 3)
		f.write(t, []string{"b.yaml", "a.yaml"}[i%2], to+"---\n"+plain("gold", 51+i))
		f.inForce(t, fmt.Sprintf("free=5 gold=%d pro=60", 51+i))
	}
	close(stop)
	<-stopped
	f.write(t, "a.yaml", plain("free", 5))
	f.write(t, "b.yaml", plain("pro", 60))
	f.inForce(t, "free=5 pro=60")
}

// TestFaultsAreLoggedOnce breaks and mends one file while another one stays broken.
func TestFaultsAreLoggedOnce(t *testing.T) {
	f := follow(t, map[string]string{"a.yaml": plain("free", 5), "b.yaml": plain("pro", 60)})
	f.write(t, "a.yaml", plain("free", -1))
	f.logged(t, "a.yaml:7: spec.requests.perMinute", 1)
	f.write(t, "b.yaml", plain("pro", -1))
	f.logged(t, "b.yaml:7: spec.requests.perMinute", 1)
	f.write(t, "b.yaml", plain("pro", 61))
	f.inForce(t, "free=5 pro=61")
	f.write(t, "a.yaml", plain("free", 5)) // what is in force
	f.logged(t, "all tier files are usable again", 1)
	f.write(t, "c.yaml", "")
	f.logged(t, "c.yaml:1: no RateLimitTier in this file", 1)
	f.logged(t, "a.yaml:7: spec.requests.perMinute", 1)
	f.logged(t, "b.yaml:7: spec.requests.perMinute", 1)
}
