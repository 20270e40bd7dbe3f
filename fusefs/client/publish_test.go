package client

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

func TestPublish(t *testing.T) {
	f := newFakeIdentity(t)
	s := f.staged()
	p, err := s.Publish(t.Context())
	if err != nil || p.Replay || p.Dir != filepath.Join(f.dir, testGeneration) {
		t.Fatalf("Publish = %+v, %v", p, err)
	}
	// A second rank of the same attempt finds its staging gone.
	if err := os.Remove(filepath.Join(p.Dir, "plan.json")); err != nil {
		t.Fatal(err)
	}
	if plan, err := s.Plan(); err != nil || !plan.Published || len(plan.Missing) > 0 {
		t.Errorf("Plan afterwards = %+v, %v", plan, err)
	}
	p, err = s.Publish(t.Context())
	if err != nil || !p.Replay {
		t.Errorf("Publish by another rank = %+v, %v; want a replay", p, err)
	}
}

func TestPublishOfAReplayRemovesTheStaging(t *testing.T) {
	f := newFakeIdentity(t)
	f.write("rank-0/group/00000000", "page")
	if err := os.MkdirAll(filepath.Join(f.dir, testGeneration, "rank-0"), 0o755); err != nil {
		t.Fatal(err)
	}
	p, err := f.staged().Publish(t.Context())
	if err != nil || !p.Replay {
		t.Errorf("Publish = %+v, %v; want a replay", p, err)
	}
	if _, err := os.Lstat(f.path()); !os.IsNotExist(err) {
		t.Errorf("the staging directory is still there: %v", err)
	}
}

func TestPublishWaitsForTheOtherRanks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeIdentity(t)
		s := f.staged(testPage)
		answers := []error{unix.EBUSY, unix.EINTR, unix.EBUSY, nil}
		p, err := s.publish(t.Context(), func(string, string) error {
			answer := answers[0]
			answers = answers[1:]
			return answer
		})
		if err != nil || p.Busy != 2 || p.Replay {
			t.Errorf("publish = %+v, %v", p, err)
		}
	})
}

func TestPublishTellsWhomItWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeIdentity(t)
		s := f.staged(testPage)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := s.publish(ctx, func(string, string) error { return unix.EBUSY })
		if !errors.Is(err, unix.EBUSY) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the error is %v", err)
		}
		wantError(t, err, testPage.Path)
	})
}

func TestPublishGivesTheReason(t *testing.T) {
	f := newFakeIdentity(t)
	s := f.staged()
	f.write("error", "page rank-0/g/00000000 is longer than page_bytes\n")
	_, err := s.publish(t.Context(), func(string, string) error { return unix.EINVAL })
	if !errors.Is(err, unix.EINVAL) {
		t.Errorf("the error is %v", err)
	}
	wantError(t, err, "is longer than page_bytes", f.path())
}

func TestPublishOfADiscardedStaging(t *testing.T) {
	f := newFakeIdentity(t)
	s := f.staged()
	if err := os.RemoveAll(f.path()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Publish(t.Context()); !errors.Is(err, ErrGone) {
		t.Errorf("the error is %v, want ErrGone", err)
	}
}

func TestAbandonLeavesALaterAttemptAlone(t *testing.T) {
	f := newFakeIdentity(t)
	s := f.staged()
	if err := os.Rename(f.path(), filepath.Join(f.dir, testGeneration)); err != nil {
		t.Fatal(err)
	}
	f.write("manifest.json", "a later attempt")
	if err := s.Abandon(); err != nil {
		t.Fatal(err)
	}
	if f.read("manifest.json") != "a later attempt" {
		t.Error("the later attempt was removed")
	}
}

// TestNothingIsRemovedFromAPublication: another rank may publish while this one gives up; what it then has open is the
// generation.
func TestNothingIsRemovedFromAPublication(t *testing.T) {
	page := filepath.Join(testGeneration, testPage.Path)
	for name, giveUp := range map[string]func(t *testing.T, s *Staging, publish func()){
		"a page that could not be written": func(t *testing.T, s *Staging, publish func()) {
			_, err := s.CopyPage(t.Context(), testPage.Path, testPage.Bytes, readerFunc(func([]byte) (int, error) {
				publish()
				return 0, unix.EIO
			}))
			wantError(t, err, testPage.Path)
		},
		"a page that seems left behind": func(t *testing.T, s *Staging, publish func()) {
			publish()
			if _, err := s.discardPage(testPage.Path); err != nil {
				t.Error(err)
			}
		},
		"the staging": func(t *testing.T, s *Staging, publish func()) {
			publish()
			if err := s.removeContents(s.dir); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeIdentity(t)
			giveUp(t, f.staged(testPage), func() {
				// The page is another rank's by now.
				if err := os.RemoveAll(f.path(testPage.Path)); err != nil {
					t.Fatal(err)
				}
				f.write(testPage.Path, "8 bytes.")
				if err := os.Rename(f.path(), filepath.Join(f.dir, testGeneration)); err != nil {
					t.Fatal(err)
				}
			})
			if content, err := os.ReadFile(filepath.Join(f.dir, page)); string(content) != "8 bytes." {
				t.Errorf("the published page is %q, %v", content, err)
			}
		})
	}
}

// TestCopyPageLeavesThePageOfAnother: whoever waited for too long has written the page itself.
func TestCopyPageLeavesThePageOfAnother(t *testing.T) {
	f := newFakeIdentity(t)
	s := f.staged(testPage)
	_, err := s.CopyPage(t.Context(), testPage.Path, testPage.Bytes, readerFunc(func([]byte) (int, error) {
		if err := os.Remove(f.path(testPage.Path)); err != nil {
			t.Error(err)
		}
		f.write(testPage.Path, "8 bytes.")
		return 0, unix.EIO
	}))
	wantError(t, err, testPage.Path)
	if got := f.read(testPage.Path); got != "8 bytes." {
		t.Errorf("the page of another rank is %q", got)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }
