package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Extended attributes: there by name, never listed.

// xattr reads one attribute of user.ckptfs.
func xattr(path, name string) (string, error) {
	buf := make([]byte, 4096)
	n, err := unix.Lgetxattr(path, "user.ckptfs."+name, buf)
	return string(buf[:max(n, 0)]), err
}

func setXattr(path, name, value string) error {
	return unix.Lsetxattr(path, "user.ckptfs."+name, []byte(value), 0)
}

func wantXattr(t testing.TB, path, name string, want ...string) {
	t.Helper()
	got, err := xattr(path, name)
	if err != nil || !contains(want, got) {
		t.Errorf("user.ckptfs.%s of %s is %q (%v), want %q", name, filepath.Base(path), got, err, want)
	}
}

func TestAttributesByName(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		id := newIdentity("xattr", 2)
		ident := m.addIdentity(t, "model", id)
		g := smallGeneration(id, conversation(1, 1000))
		dir := publish(t, ident, g)
		page := filepath.Join(dir, g.pages()[0].path)

		for _, path := range []string{dir, page} {
			wantXattr(t, path, "state", "current", "fork")
			wantXattr(t, path, "tier", "ram", "both")
			wantXattr(t, path, "tokens", "1000")
			wantXattr(t, path, "kind", "response")
			wantXattr(t, path, "leases", "0")
			published, err := xattr(path, "published")
			at, parseErr := time.Parse(time.RFC3339Nano, published)
			if err := errors.Join(err, parseErr); err != nil || time.Since(at) < 0 || time.Since(at) > patience {
				t.Errorf("published %q: %v", published, err)
			}
			_, err = xattr(path, "superseded_by")
			wantErrno(t, "superseded_by of what is not", err, syscall.ENODATA)
		}
		wantXattr(t, dir, "key", g.digest().hex())
		wantXattr(t, page, "key", g.pages()[0].key.hex())
		f, err := os.Open(page)
		must(t, err)
		defer f.Close()
		d, err := os.Open(filepath.Join(dir, "rank-1"))
		must(t, err)
		defer d.Close()
		wantXattr(t, page, "leases", "1")
		wantXattr(t, dir, "leases", "1", "2") // the rank's handle leases the generation as well
		// A buffer that is too short, and asking for the size.
		_, err = unix.Lgetxattr(dir, "user.ckptfs.state", make([]byte, 2))
		wantErrno(t, "a short buffer", err, syscall.ERANGE)
		if n, err := unix.Lgetxattr(dir, "user.ckptfs.kind", nil); err != nil || n != len("response") {
			t.Errorf("the size of kind is %d, %v", n, err)
		}
	})
}

// TestOtherAttributes: nothing is listed, and nothing else can be set, anywhere.
func TestOtherAttributes(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md)
		id := newIdentity("xattr", 1)
		ident := m.addIdentity(t, "model", id)
		g := smallGeneration(id, conversation(1, 300))
		dir := publish(t, ident, g)
		s := beginStaging(t, ident, "s", smallGeneration(id, conversation(2, 300)))
		s.complete(t)
		for _, path := range []string{
			m.path, filepath.Dir(ident), ident, ident + "/identity.json", ident + "/.staging", dir, dir + "/manifest.json",
			dir + "/rank-0", filepath.Join(dir, g.pages()[0].path), s.path(), s.file("manifest.json"), s.file(s.g.pages()[0].path),
		} {
			if n, err := unix.Llistxattr(path, nil); n != 0 || err != nil {
				t.Errorf("%s lists %d bytes of attributes, %v", path, n, err)
			}
			for _, name := range []string{"user.other", "user.ckptfs.unknown", "user.ckptfs."} {
				_, err := unix.Lgetxattr(path, name, nil)
				wantErrno(t, "reading "+name+" of "+path, err, syscall.ENODATA)
			}
			for _, name := range []string{"security.capability", "security.selinux", "system.posix_acl_access", "system.posix_acl_default"} {
				_, err := unix.Lgetxattr(path, name, nil)
				wantErrno(t, "reading "+name+" of "+path, err, syscall.ENOTSUP)
			}
			for _, name := range []string{"user.other", "user.ckptfs.unknown", "trusted.x"} {
				wantErrno(t, "setting "+name+" of "+path, unix.Lsetxattr(path, name, []byte("1"), 0), syscall.ENOTSUP)
				wantErrno(t, "removing "+name+" of "+path, unix.Lremovexattr(path, name), syscall.ENOTSUP)
			}
			wantOneOf(t, "setting the state of "+path, setXattr(path, "state", "current"), syscall.EPERM, syscall.ENOTSUP)
		}
		must(t, os.RemoveAll(s.path()))
	})
}

// fill publishes n generations that share nothing and returns their names, the oldest first.
func fill(t testing.TB, ident string, id identity, from, n int) []string {
	t.Helper()
	var list []string
	for i := range n {
		g := tinyGeneration(id, conversation(uint64(from+i), 10))
		publish(t, ident, g)
		list = append(list, g.name())
	}
	return list
}

// wantGone waits until a name that the server itself has retired is seen by nobody any more.
func wantGone(t testing.TB, path string) {
	t.Helper()
	eventually(t, "the kernel forgets "+path, func() error {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("lstat: %v", err)
		}
		return nil
	})
}

// TestPin: what is pinned is not retired for want of room, over restarts too.
func TestPin(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md, "--max-generations", "6", "--allow-other")
		id := newIdentity("pin", 1)
		ident := m.addIdentity(t, "model", id)
		other := newIdentity("pinned", 1)
		otherIdent := m.addIdentity(t, "model", other)
		whole := fill(t, otherIdent, other, 1, 2)
		must(t, setXattr(otherIdent, "pin", "1"))
		old := fill(t, ident, id, 10, 4)
		kept := filepath.Join(ident, old[0])
		wantErrno(t, "a value that is none", setXattr(kept, "pin", "perhaps"), syscall.EINVAL)
		must(t, setXattr(kept, "pin", "1"))
		wantXattr(t, kept, "pin", "1")
		a := asUser(t, alice)
		wantErrno(t, "a stranger's pin", a.call(request{Op: "setxattr", Path: kept, To: "user.ckptfs.pin", Data: []byte("0")}).err(), syscall.EACCES)

		m.killKeeper()
		m.start()
		wantXattr(t, kept, "pin", "1")
		wantXattr(t, otherIdent, "pin", "1")
		fill(t, ident, id, 20, 8)
		got := names(t, ident)
		if !contains(got, old[0]) || contains(got, old[1]) {
			t.Errorf("of %q, the first of which is pinned, these are left: %q", old, got)
		}
		if got := names(t, otherIdent); !contains(got, whole[0]) || !contains(got, whole[1]) {
			t.Errorf("the pinned identity has lost generations: %q", got)
		}
		must(t, unix.Lremovexattr(kept, "user.ckptfs.pin"))
		wantErrno(t, "removing it again", unix.Lremovexattr(kept, "user.ckptfs.pin"), syscall.ENODATA)
		_, err := xattr(kept, "pin")
		wantErrno(t, "reading it", err, syscall.ENODATA)
		fill(t, ident, id, 30, 5)
		wantGone(t, kept)
		rmSilently(t, otherIdent) // its owner may delete it all the same
		wantMissing(t, otherIdent)
	})
}

// TestQuota: a hard bound on the bytes of an identity or a model.
func TestQuota(t *testing.T) {
	inModes(t, func(t *testing.T, md mode) {
		m := mountFS(t, md, "--allow-other")
		id := newIdentity("quota", 1)
		ident := m.addIdentity(t, "model", id)
		model := filepath.Dir(ident)
		neighbour := newIdentity("beside", 1)
		beside := m.addIdentity(t, "model", neighbour)
		must(t, setXattr(ident, "quota", "64KiB")) // 16 pages of 4 KiB
		wantXattr(t, ident, "quota", "65536")
		for _, bad := range []string{"", "-1", "much", "99999999TiB"} {
			wantErrno(t, fmt.Sprintf("the quota %q", bad), setXattr(ident, "quota", bad), syscall.EINVAL)
		}
		wantErrno(t, "a quota of a page group", setXattr(filepath.Join(ident, ".staging"), "quota", "1"), syscall.ENOTSUP)
		must(t, os.Chmod(model, 0o777))
		must(t, os.Chown(ident, alice, alice))
		a := asUser(t, alice)
		wantErrno(t, "her own quota", a.call(request{Op: "setxattr", Path: ident, To: "user.ckptfs.quota", Data: []byte("0")}).err(), syscall.EPERM)

		// 3+2 pages each: three fit.
		var dirs []string
		for i := range 3 {
			dirs = append(dirs, publish(t, ident, smallGeneration(id, conversation(uint64(i), 700))))
		}
		large := staging{ident: ident, name: "large", g: smallGeneration(id, conversation(50, 256*15))}
		wantErrno(t, "more than the quota", large.begin(), syscall.EDQUOT)
		if r := large.reason(t); !strings.Contains(r, "quota") {
			t.Errorf("the reason is %q", r)
		}
		must(t, os.RemoveAll(large.path()))
		if got := names(t, ident); len(got) != 4 {
			t.Errorf("something was evicted for what cannot fit: %q", got)
		}
		ask(t, ident, conversation(0, 700)) // the first is warm again
		next := publish(t, ident, smallGeneration(id, conversation(3, 700)))
		wantGone(t, dirs[1])

		// What is pinned or being written is not evicted.
		must(t, setXattr(dirs[0], "pin", "1"))
		must(t, setXattr(dirs[2], "pin", "1"))
		s := beginStaging(t, ident, "s", smallGeneration(id, conversation(4, 700))) // evicts next
		wantGone(t, next)
		over := staging{ident: ident, name: "over", g: smallGeneration(id, conversation(5, 700))}
		wantErrno(t, "beside a staging that has the rest", over.begin(), syscall.EDQUOT)
		must(t, os.RemoveAll(over.path()))
		s.complete(t)
		must(t, s.rename())
		// A longer generation of a conversation that is there needs only its tail.
		publish(t, ident, smallGeneration(id, conversation(0, 700)[:512]))

		// The model's quota is over all its identities; a neighbour's pages count.
		must(t, setXattr(model, "quota", "96KiB"))
		m.killKeeper()
		m.start()
		wantXattr(t, model, "quota", "98304")
		publish(t, beside, smallGeneration(neighbour, conversation(6, 700)))
		too := staging{ident: beside, name: "b", g: smallGeneration(neighbour, conversation(7, 256*23))}
		wantErrno(t, "beyond the model's quota", too.begin(), syscall.EDQUOT)
		must(t, os.RemoveAll(too.path()))
		must(t, unix.Lremovexattr(model, "user.ckptfs.quota"))
		publish(t, beside, too.g)
	})
}
