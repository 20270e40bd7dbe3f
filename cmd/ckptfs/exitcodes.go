package main

import (
	"errors"

	"golang.org/x/sys/unix"
)

// The exit codes of ckptfs. They are part of its interface: a number never changes its meaning.
const (
	exitOK         = 0
	exitFailure    = 1
	exitUsage      = 2
	exitMountPoint = 3
	exitState      = 4
	exitInUse      = 5
	exitMount      = 6
	exitRAM        = 7
	exitDaemon     = 8
	exitNotMounted = 9
	exitMiss       = 10
	exitRefused    = 11
	exitUpgrade    = 12
	exitForced     = 13
	exitBusy       = 14
)

// exitCodes is the list that help prints.
var exitCodes = []struct {
	code    int
	meaning string
}{
	{exitOK, "done"},
	{exitFailure, "failed for a reason that has no number of its own; the message says which"},
	{exitUsage, "unknown command, wrong flag or wrong number of arguments"},
	{exitMountPoint, "mount: the mount point is missing, is no directory, or is in use as a mount"},
	{exitState, "mount: the state directory cannot be used, or lies at or below the mount point"},
	{exitInUse, "mount: the state directory is in use by another ckptfs that is alive"},
	{exitMount, "mount: the filesystem could not be mounted (no /dev/fuse, no privilege)"},
	{exitRAM, "mount: the RAM tier could not be had in the size asked for"},
	{exitDaemon, "mount: the daemon died again and again and was given up"},
	{exitNotMounted, "no ckptfs is mounted there, or it does not answer"},
	{exitMiss, "nothing was found; the message says why"},
	{exitRefused, "the filesystem refused what was given to it; the message says why"},
	{exitUpgrade, "upgrade: the new binary did not come up; the one before serves on"},
	{exitForced, "mount: ended at once by a second signal, without flushing"},
	{exitBusy, "what was to be removed is in use; the message says by whom"},
}

// codedError is an error that decides the exit code of the process.
type codedError struct {
	code int
	err  error
}

func (e *codedError) Error() string { return e.err.Error() }
func (e *codedError) Unwrap() error { return e.err }

// withCode makes the process exit with code if err is what ends it. A nil err stays nil.
func withCode(code int, err error) error {
	if err == nil {
		return nil
	}
	return &codedError{code, err}
}

// exitCodeOf returns the code given by the outermost withCode in err's chain. Without one, a call into a mount that
// nobody serves any more has the same code in every command, and anything else is exitFailure.
func exitCodeOf(err error) int {
	var c *codedError
	switch {
	case errors.As(err, &c):
		return c.code
	case errors.Is(err, unix.ENOTCONN), errors.Is(err, unix.ECONNABORTED):
		return exitNotMounted
	}
	return exitFailure
}
