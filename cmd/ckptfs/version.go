package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
)

// version is set by the linker: -ldflags "-X main.version=v1.2.3". Without it the go tool's own stamp counts.
var version string

// buildVersion names this build, for status, logs and 'ckptfs version'.
func buildVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

func runVersion(_ context.Context, args []string, io streams) error {
	fs := newFlags(io, "version", "Prints the version of this binary.")
	if err := parseFlags(fs, args, 0, 0); err != nil {
		return err
	}
	_, err := fmt.Fprintf(io.out, "ckptfs %s %s/%s %s\n", buildVersion(), runtime.GOOS, runtime.GOARCH, runtime.Version())
	return err
}
