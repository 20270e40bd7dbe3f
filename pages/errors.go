package pages

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// What reading from the disk tier can end in, errno trouble apart. Only ErrLost
// and ErrAbsent say that the disk has no good copy; every other error (EIO,
// EACCES, ESTALE, a cancelled context, …) is trouble that may pass, and must
// not retire anything.
var (
	// ErrLost: what is in the object's place is not what was written. It has
	// been moved to quarantine, if that was possible.
	ErrLost = errors.New("object is damaged")
	// ErrAbsent: there is no object, and the disk itself said so.
	ErrAbsent = errors.New("no such object")
	// ErrNewerFormat: a sound object, written by a later version of ckptfs.
	// Trouble, not loss.
	ErrNewerFormat = errors.New("format is newer than this program")
	// ErrTierChanged: the tier's directory is not the one that was opened (its
	// disk is not mounted, most likely), so an absence means nothing. Trouble.
	ErrTierChanged = errors.New("the disk tier's directory is not the one that was opened")
)

// What a write is refused with before the disk is asked. Both wrap ENOSPC.
var (
	// ErrDiskBound: the object and what is there exceed DiskConfig.SizeBytes.
	ErrDiskBound = fmt.Errorf("disk tier is full: %w", unix.ENOSPC)
	// ErrDiskMinFree: the disk would be left with less than MinFreeBytes.
	ErrDiskMinFree = fmt.Errorf("disk has no more than its minimum of free space: %w", unix.ENOSPC)
)
