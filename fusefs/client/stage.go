package client

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// StageOptions say what is to be stored.
type StageOptions struct {
	// Name of the staging directory, without a slash: the same for all ranks of
	// one attempt, and another one for every attempt.
	Name string
	// Manifest is the document, the same for all ranks.
	Manifest []byte
	// Tokens are the exact prefix. They are left out for a manifest that was
	// published before, as a restore from backup has it.
	Tokens []uint32
}

// errVanished says that a staging directory was published or removed by another
// process while this one was joining it. Joining starts over then.
var errVanished = errors.New("the staging directory vanished while it was being joined")

// Stage joins or makes the staging directory of an attempt and returns when its
// plan can be read. The rank whose mkdir wins writes tokens and manifest; the
// others wait for it, and take over if it seems to have died before that.
//
// A refused manifest is a StagingError with EINVAL and the reason, missing RAM
// one with ENOSPC; either way the directory is removed. EAGAIN means that the
// mount has as many stagings as --max-staging allows.
func Stage(ctx context.Context, identityDir string, options StageOptions) (*Staging, error) {
	for wait := newBackoff(); ; {
		s, err := stageOnce(ctx, identityDir, options)
		if !errors.Is(err, errVanished) {
			return s, err
		}
		if ctxErr := wait.wait(ctx); ctxErr != nil {
			return nil, fmt.Errorf("%w (%w)", err, ctxErr)
		}
	}
}

func stageOnce(ctx context.Context, identityDir string, options StageOptions) (*Staging, error) {
	s, made, err := join(identityDir, options.Name)
	if err != nil {
		return nil, err
	}
	if made {
		err = s.describe(options)
	}
	if err == nil {
		err = s.awaitPlan(ctx, options)
	}
	if err == nil && !made {
		err = s.compareManifest(options.Manifest)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// join makes the directory or finds it made, and opens it.
func join(identityDir, name string) (s *Staging, made bool, err error) {
	dir := filepath.Join(identityDir, ".staging", name)
	if name == "" || name == "." || name == ".." || strings.Contains(name, "/") {
		// It would lead elsewhere, and giving it up would remove what is there.
		return nil, false, fmt.Errorf("%q is no name for a staging directory: %w", name, unix.EINVAL)
	}
	err = retry(func() error { return unix.Mkdir(dir, 0o755) })
	if err != nil && err != unix.EEXIST {
		return nil, false, &os.PathError{Op: "mkdir", Path: dir, Err: err}
	}
	made = err == nil
	handle, err := open(dir, unix.O_RDONLY|unix.O_DIRECTORY)
	switch {
	case isGone(err):
		return nil, false, fmt.Errorf("%s: %w", dir, errVanished)
	case err != nil:
		return nil, false, err
	}
	return &Staging{dir: dir, identityDir: identityDir, handle: handle}, made, nil
}
