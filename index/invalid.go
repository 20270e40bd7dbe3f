package index

import (
	"fmt"
	"syscall"
)

// InvalidError says, in one sentence that names the place, why bytes that a
// user wrote (an identity document, a manifest, tokens, a lookup) are refused.
// It unwraps to EINVAL, which is what the file system answers.
type InvalidError struct {
	Reason string
}

func (e *InvalidError) Error() string { return e.Reason }

// Unwrap makes errors.Is(err, syscall.EINVAL) true.
func (e *InvalidError) Unwrap() error { return syscall.EINVAL }

func invalidf(format string, args ...any) error {
	return &InvalidError{Reason: fmt.Sprintf(format, args...)}
}
