package client

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var testPage = Page{Path: PagePath(1, "target.recurrent.0", 39), Bytes: 8}

func TestWritePage(t *testing.T) {
	f := newFakeIdentity(t)
	s := f.staged(testPage)
	wrote, err := s.WritePage(t.Context(), testPage.Path, []byte("8 bytes."))
	if !wrote || err != nil || f.read(testPage.Path) != "8 bytes." {
		t.Fatalf("WritePage = %v, %v; the page is %q", wrote, err, f.read(testPage.Path))
	}
	wrote, err = s.WritePage(t.Context(), testPage.Path, []byte("others! "))
	if wrote || err != nil || f.read(testPage.Path) != "8 bytes." {
		t.Errorf("again: WritePage = %v, %v; the page is %q", wrote, err, f.read(testPage.Path))
	}
}

func TestWritePageReplacesWhatADeadWriterLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeIdentity(t)
		f.write(testPage.Path, "8 by")
		s := f.staged(testPage)
		start := time.Now()
		wrote, err := s.WritePage(t.Context(), testPage.Path, []byte("8 bytes."))
		if !wrote || err != nil || f.read(testPage.Path) != "8 bytes." {
			t.Fatalf("WritePage = %v, %v; the page is %q", wrote, err, f.read(testPage.Path))
		}
		if waited := time.Since(start); waited < abandonedAfter {
			t.Errorf("the writer was given up after %v", waited)
		}
	})
}

func TestWritePageLeavesALiveWriterAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeIdentity(t)
		f.write(testPage.Path, "8")
		s := f.staged(testPage)
		go func() {
			for _, content := range []string{"8 ", "8 b", "8 by", "8 bytes!"} {
				time.Sleep(abandonedAfter * 3 / 4)
				f.write(testPage.Path, content)
			}
		}()
		wrote, err := s.WritePage(t.Context(), testPage.Path, []byte("8 bytes."))
		if wrote || err != nil || f.read(testPage.Path) != "8 bytes!" {
			t.Errorf("WritePage = %v, %v; the page is %q", wrote, err, f.read(testPage.Path))
		}
	})
}

func TestWritePageSkipsWhatThePlanNoLongerMisses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeIdentity(t)
		f.write(testPage.Path, "8 by")
		s := f.staged()
		if wrote, err := s.WritePage(t.Context(), testPage.Path, []byte("8 bytes.")); wrote || err != nil {
			t.Errorf("WritePage = %v, %v", wrote, err)
		}
	})
}

func TestWritePageAfterPublicationByAnotherRank(t *testing.T) {
	f := newFakeIdentity(t)
	s := f.staged(testPage)
	if err := os.RemoveAll(f.path()); err != nil {
		t.Fatal(err)
	}
	_, err := s.WritePage(t.Context(), testPage.Path, []byte("8 bytes."))
	wantError(t, err, testPage.Path, "gone")
	if err := os.Mkdir(f.dir+"/"+testGeneration, 0o755); err != nil {
		t.Fatal(err)
	}
	if wrote, err := s.WritePage(t.Context(), testPage.Path, []byte("8 bytes.")); wrote || err != nil {
		t.Errorf("after publication: WritePage = %v, %v", wrote, err)
	}
}

func TestCopyPageLeavesNoHalfPage(t *testing.T) {
	f := newFakeIdentity(t)
	s := f.staged(testPage)
	f.write("error", "the disk of the source is short\n")
	wrote, err := s.CopyPage(t.Context(), testPage.Path, testPage.Bytes, strings.NewReader("short"))
	if wrote {
		t.Error("a short page counts as written")
	}
	wantError(t, err, testPage.Path, "only 5 of 8 bytes", "the disk of the source is short")
	if _, err := os.Lstat(f.path(testPage.Path)); !os.IsNotExist(err) {
		t.Errorf("the half page is still there: %v", err)
	}
}

// TestCopyPageEndsWithItsContext: a large page from a slow disk is not copied to its end.
func TestCopyPageEndsWithItsContext(t *testing.T) {
	f := newFakeIdentity(t)
	page := Page{Path: testPage.Path, Bytes: 64 * copyBufferBytes}
	s := f.staged(page)
	ctx, cancel := context.WithCancel(t.Context())
	reads := 0
	_, err := s.CopyPage(ctx, page.Path, page.Bytes, readerFunc(func(b []byte) (int, error) {
		cancel()
		reads++
		return len(b), nil
	}))
	if !errors.Is(err, context.Canceled) || reads > 1 {
		t.Errorf("%d reads, then %v", reads, err)
	}
	if _, err := os.Lstat(f.path(page.Path)); !os.IsNotExist(err) {
		t.Errorf("the half page is still there: %v", err)
	}
}
