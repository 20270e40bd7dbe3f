package client

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Identify hands an identity document to the filesystem and returns the path of
// its identity directory, which it creates if need be. It makes the model's
// directory too. model may be written org/name.
//
// A document that is refused is EINVAL; `ckptfs identity FILE` tells what is
// wrong with it.
func Identify(ctx context.Context, mount, model string, document []byte) (string, error) {
	if _, err := statAt(unix.AT_FDCWD, filepath.Join(mount, ".ckptfs")); err != nil {
		return "", fmt.Errorf("%s is not a ckptfs mount: %w", mount, err)
	}
	dir := filepath.Join(mount, ModelDir(model))
	if err := mkdirAt(unix.AT_FDCWD, dir); err != nil {
		return "", fmt.Errorf("model %s: %w", model, err)
	}
	file, err := open(filepath.Join(dir, ".identify"), os.O_RDWR)
	if err != nil {
		return "", fmt.Errorf("identify: %w", err)
	}
	defer file.Close()
	name, err := converse(ctx, file, document)
	if isErrno(err, unix.EINVAL) {
		return "", fmt.Errorf("identify in %s: the identity document is refused (`ckptfs identity FILE` says why): %w", dir, err)
	}
	if err != nil {
		return "", fmt.Errorf("identify in %s: %w", dir, err)
	}
	return filepath.Join(dir, string(name)), nil
}
