package pages

import (
	"errors"

	"golang.org/x/sys/unix"
)

// retryEINTR calls f until it is not interrupted. The Go runtime preempts with
// SIGURG, so any slow system call can come back with EINTR (see os.ignoringEINTR).
func retryEINTR(f func() error) error {
	for {
		err := f()
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// retryEINTRInt is retryEINTR for calls that return a descriptor or a count.
func retryEINTRInt(f func() (int, error)) (int, error) {
	for {
		n, err := f()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
