package client

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrGone says that a staging directory disappeared and its generation is not
// published: somebody removed it, or it was idle for longer than the mount's
// --staging-timeout.
var ErrGone = errors.New("the staging directory is gone and its generation is not published")

// ErrOtherManifest says that a staging directory of the wanted name holds
// another manifest. Names are for one attempt: choose another one.
var ErrOtherManifest = errors.New("the staging directory holds another manifest: every attempt needs its own name")

// StagingError is a refusal by the filesystem, with its reason in words.
// It unwraps to the errno.
type StagingError struct {
	// Op is what was tried, such as "publish".
	Op string
	// Dir is the staging directory.
	Dir string
	// Reason is the content of the staging's file "error", or empty.
	Reason string
	// Err is what the call returned.
	Err error
}

func (e *StagingError) Error() string {
	text := fmt.Sprintf("%s %s: %v", e.Op, e.Dir, e.Err)
	if e.Reason != "" {
		text += ": " + e.Reason
	}
	return text
}

// Unwrap returns the error of the call.
func (e *StagingError) Unwrap() error { return e.Err }

// isErrno reports whether err is, or wraps, the errno.
func isErrno(err error, errno syscall.Errno) bool {
	var got syscall.Errno
	return errors.As(err, &got) && got == errno
}

// isGone reports whether err says that a name or directory is no longer there.
func isGone(err error) bool { return isErrno(err, unix.ENOENT) || isErrno(err, unix.ESTALE) }

// fail makes a StagingError of err and of what the staging's error file says.
func (s *Staging) fail(op string, err error) error {
	return &StagingError{Op: op, Dir: s.dir, Reason: s.Reason(), Err: err}
}

// Reason returns the sentence in which the filesystem explained its last
// refusal in this staging, or "".
func (s *Staging) Reason() string {
	f, err := openAt(s.fd(), "error", unix.O_RDONLY, 0)
	if err != nil {
		return ""
	}
	defer f.Close()
	text := make([]byte, 4096)
	n, _ := f.Read(text)
	return strings.TrimSpace(string(text[:max(n, 0)]))
}
