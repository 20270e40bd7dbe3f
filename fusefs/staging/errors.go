package staging

import (
	"fmt"
	"syscall"
)

// Error is a refusal with its reason in words; the reason is what the staging's
// `error` file says.
type Error struct {
	Errno  syscall.Errno
	Reason string
}

func (e *Error) Error() string { return e.Reason }
func (e *Error) Unwrap() error { return e.Errno }

func refuse(errno syscall.Errno, format string, args ...any) *Error {
	return &Error{errno, fmt.Sprintf(format, args...)}
}
