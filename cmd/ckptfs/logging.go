package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"

	"github.com/spf13/pflag"

	"ckptfs/fusefs"
)

// logOptions are the flags about the log. The daemon gets them from the keeper.
type logOptions struct {
	Level  string
	Format string
}

func (o *logOptions) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Level, "log-level", "info", "least level that is logged to stderr: debug, info, warn, error")
	fs.StringVar(&o.Format, "log-format", "text", "text or json")
}

// newLogger makes the logger that the options ask for. Its handler is a *limitedHandler.
func (o logOptions) newLogger(w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.Level)); err != nil {
		return nil, withCode(exitUsage, fmt.Errorf("--log-level %q: use debug, info, warn or error", o.Level))
	}
	opt := &slog.HandlerOptions{Level: level}
	switch o.Format {
	case "text":
		return slog.New(limitLog(slog.NewTextHandler(w, opt))), nil
	case "json":
		return slog.New(limitLog(slog.NewJSONHandler(w, opt))), nil
	}
	return nil, withCode(exitUsage, fmt.Errorf("--log-format %q: use text or json", o.Format))
}

// logCounts tells what a logger of newLogger has let through and suppressed.
func logCounts(log *slog.Logger) func() fusefs.LogCounts {
	if h, ok := log.Handler().(*limitedHandler); ok {
		return h.limits.count
	}
	return func() fusefs.LogCounts { return fusefs.LogCounts{} }
}

// fuseLogger gives go-fuse, which wants a *log.Logger, a place in the log.
func fuseLogger(to *slog.Logger) *log.Logger { return log.New(fuseLogWriter{to}, "", 0) }

type fuseLogWriter struct{ to *slog.Logger }

// Write implements io.Writer: one message each, as package log does.
func (w fuseLogWriter) Write(p []byte) (int, error) {
	level := slog.LevelWarn
	if bytes.HasPrefix(p, []byte("Unimplemented opcode")) {
		level = slog.LevelDebug // asked once by each kernel, answered ENOSYS
	}
	w.to.Log(context.Background(), level, "fuse: "+string(bytes.TrimSpace(p)))
	return len(p), nil
}
