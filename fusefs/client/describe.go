package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"time"

	"golang.org/x/sys/unix"
)

// takeOverAfter is how long a staging directory without a manifest may stand
// still before another rank than its maker writes the manifest.
const takeOverAfter = 2 * time.Second

// describe writes tokens and manifest. If they are refused it removes the
// directory, so that another rank does not wait for them in vain.
func (s *Staging) describe(options StageOptions) error {
	if options.Tokens != nil {
		if err := s.writeFile("tokens", EncodeTokens(options.Tokens)); err != nil {
			return s.refused("write the tokens of", err)
		}
	}
	if err := s.writeFile("manifest.json", options.Manifest); err != nil {
		return s.refused("write the manifest of", err)
	}
	return nil
}

func (s *Staging) refused(op string, err error) error {
	if !s.there() {
		return fmt.Errorf("%s %s: %w: %w", op, s.dir, errVanished, err)
	}
	err = s.fail(op, err)
	_ = s.Abandon() // the refusal is what the caller must know
	return err
}

// writeFile writes a whole file. The verdict on a manifest comes with its close.
func (s *Staging) writeFile(name string, content []byte) error {
	f, err := openAt(s.fd(), name, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if closeErr := closeChecked(f); err == nil {
		err = closeErr
	}
	return err
}

// awaitPlan waits until the plan is there, and with it the generation's name.
func (s *Staging) awaitPlan(ctx context.Context, options StageOptions) error {
	seen, since := s.progress(), time.Now()
	for wait := newBackoff(); ; {
		plan, err := s.readPlan()
		if err == nil {
			s.generation = plan.Generation
			return nil
		}
		if !s.there() {
			return fmt.Errorf("%s: %w", s.dir, errVanished)
		}
		if now := s.progress(); now != seen {
			seen, since = now, time.Now()
		}
		if time.Since(since) >= takeOverAfter && !seen.judging(options) {
			// If the maker lives after all, its own attempt decides: what is
			// in the way of this one is not the manifest's fault.
			if err := s.describe(options); isErrno(err, unix.EINVAL) || isErrno(err, unix.ENOSPC) {
				return err
			}
			since = time.Now()
		}
		if ctxErr := wait.wait(ctx); ctxErr != nil {
			return s.fail("wait for the plan of", fmt.Errorf("%w: %w", ctxErr, err))
		}
	}
}

// progress is what can be seen of another rank's work on the manifest.
type progress struct {
	tokensBytes, manifestBytes int64
	refused                    bool
}

func (s *Staging) progress() progress {
	tokens, _ := statAt(s.fd(), "tokens")
	manifest, _ := statAt(s.fd(), "manifest.json")
	return progress{tokens.Size, manifest.Size, s.Reason() != ""}
}

// judging reports whether the whole manifest is written and the filesystem has
// not answered yet: its close may wait for RAM.
func (p progress) judging(options StageOptions) bool {
	return p.manifestBytes == int64(len(options.Manifest)) && !p.refused
}

// compareManifest makes sure that a directory which another process made is
// about the same generation. Layout and order of the fields do not matter.
func (s *Staging) compareManifest(mine []byte) error {
	theirs, err := s.readFile("manifest.json")
	switch {
	case !s.there(), isGone(err): // a rank that saw a replay removes the directory
		return fmt.Errorf("%s: %w", s.dir, errVanished)
	case err != nil:
		return s.fail("read the manifest of", err)
	case !bytes.Equal(mine, theirs) && !sameDocument(mine, theirs):
		return s.fail("join", ErrOtherManifest)
	}
	return nil
}

func (s *Staging) readFile(name string) ([]byte, error) {
	f, err := openAt(s.fd(), name, unix.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

func sameDocument(a, b []byte) bool {
	var left, right any
	if json.Unmarshal(a, &left) != nil || json.Unmarshal(b, &right) != nil {
		return false
	}
	return reflect.DeepEqual(left, right)
}
