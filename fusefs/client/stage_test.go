package client

import (
	"context"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// stageAside calls Stage in a goroutine of its own.
func stageAside(ctx context.Context, f *fakeIdentity) <-chan error {
	done := make(chan error, 1)
	go func() {
		s, err := Stage(ctx, f.dir, testOptions)
		if err == nil {
			if s.Generation() != testGeneration {
				err = errors.New("wrong generation " + s.Generation())
			}
			s.Close()
		}
		done <- err
	}()
	return done
}

func TestStageByItsMaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeIdentity(t)
		done := stageAside(t.Context(), f)
		synctest.Wait()
		if got := f.read("manifest.json"); got != testManifest {
			t.Errorf("manifest.json is %q", got)
		}
		if got, want := f.read("tokens"), "\x01\x00\x00\x00\x02\x00\x00\x00\x03\x00\x00\x00\x04\x00\x00\x00"; got != want {
			t.Errorf("tokens are %q, want %q", got, want)
		}
		f.plan()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestStageWaitsForTheMaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeIdentity(t)
		f.mkdir()
		done := stageAside(t.Context(), f)
		time.Sleep(takeOverAfter / 2)
		f.write("tokens", "1234123412341234")
		time.Sleep(takeOverAfter / 2)
		f.write("manifest.json", "\n"+testManifest) // the layout of the JSON does not matter
		f.plan()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if got := f.read("tokens"); got != "1234123412341234" {
			t.Errorf("another rank's tokens were overwritten: %q", got)
		}
	})
}

func TestStageTakesOverFromADeadMaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeIdentity(t)
		f.write("tokens", "12")
		done := stageAside(t.Context(), f)
		time.Sleep(takeOverAfter + time.Second)
		if f.read("manifest.json") != testManifest || len(f.read("tokens")) != 16 {
			t.Error("tokens and manifest were not written in the dead rank's place")
		}
		f.plan()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestStageLeavesAManifestThatIsBeingJudged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeIdentity(t)
		mark := []byte(testManifest)
		mark[len(mark)-1] = ' '
		f.write("manifest.json", string(mark))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := <-stageAside(ctx, f)
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, unix.ENOENT) {
			t.Errorf("the error is %v, want the deadline and the missing plan", err)
		}
		if f.read("manifest.json") != string(mark) {
			t.Error("the manifest was overwritten while its maker waited for the answer")
		}
	})
}

func TestStageStartsOverWhenTheDirectoryVanishes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeIdentity(t)
		f.mkdir()
		done := stageAside(t.Context(), f)
		synctest.Wait()
		if err := os.Rename(f.path(), f.dir+"/"+testGeneration); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if f.read("manifest.json") != testManifest {
			t.Error("no new attempt was begun")
		}
		f.plan()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestStageRefusesAnotherManifest(t *testing.T) {
	f := newFakeIdentity(t)
	f.write("manifest.json", `{"schema_version":2,"kind":"response"}`)
	f.plan()
	_, err := Stage(t.Context(), f.dir, testOptions)
	if !errors.Is(err, ErrOtherManifest) {
		t.Errorf("the error is %v, want ErrOtherManifest", err)
	}
}

func TestStageWithoutIdentity(t *testing.T) {
	_, err := Stage(t.Context(), t.TempDir(), testOptions)
	if !errors.Is(err, unix.ENOENT) {
		t.Errorf("the error is %v, want ENOENT", err)
	}
}

// TestStageKeepsToItsPlace: what is refused is removed, and that must be a staging directory.
func TestStageKeepsToItsPlace(t *testing.T) {
	f := newFakeIdentity(t)
	f.write("tokens", "of another attempt")
	if err := os.Mkdir(f.dir+"/"+testGeneration, 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	for _, name := range []string{"", ".", "..", "../" + testGeneration, "attempt/rank-0", "/", "attempt/"} {
		_, err := Stage(ctx, f.dir, StageOptions{Name: name, Manifest: []byte(testManifest), Tokens: []uint32{1}})
		if !errors.Is(err, unix.EINVAL) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if _, err := os.Lstat(f.dir + "/" + testGeneration); err != nil || f.read("tokens") != "of another attempt" {
		t.Errorf("something was removed: %v", err)
	}
}
