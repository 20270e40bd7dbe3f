package main

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"ckptfs/fusefs"
)

// A flood of one message must not fill the disk with log, nor hide the others. Of each message logBurst lines get
// through in logWindow; the rest are counted, and one line tells how many there were.
const (
	logWindow = 10 * time.Second
	// logMessages bounds how many different messages are told apart; the others share one allowance.
	logMessages = 512
)

// logBurst is how many lines of one message get through in a window. Warnings are for people to be woken by.
func logBurst(l slog.Level) int {
	if l >= slog.LevelWarn {
		return 20
	}
	return 200
}

// limitedHandler is a slog.Handler that limits and counts. What is below info is for who has asked for it, and is not
// limited.
type limitedHandler struct {
	slog.Handler
	limits *logLimits
}

// logLimits is shared by the handlers that were made of one. The lock is a leaf, and is held over no output.
type logLimits struct {
	out slog.Handler // where summaries go
	mu  struct {
		sync.Mutex
		messages map[logKey]*logAllowance
		counts   fusefs.LogCounts
	}
}

type logKey struct {
	level   slog.Level
	message string
}

// logAllowance is what is left of a window.
type logAllowance struct {
	began      time.Time
	through    int
	suppressed int
}

func limitLog(out slog.Handler) *limitedHandler {
	l := &logLimits{out: out}
	l.mu.messages = map[logKey]*logAllowance{}
	return &limitedHandler{out, l}
}

// Handle implements slog.Handler.
func (h *limitedHandler) Handle(ctx context.Context, r slog.Record) error {
	if !h.limits.admit(logKey{r.Level, r.Message}) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h *limitedHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &limitedHandler{h.Handler.WithAttrs(attrs), h.limits}
}

// WithGroup implements slog.Handler.
func (h *limitedHandler) WithGroup(name string) slog.Handler {
	return &limitedHandler{h.Handler.WithGroup(name), h.limits}
}

// admit counts a line, and decides whether it gets through.
func (l *logLimits) admit(k logKey) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k.level < slog.LevelInfo {
		return true
	}
	if !l.allowedLocked(k) {
		l.mu.counts.Suppressed++
		return false
	}
	switch {
	case k.level >= slog.LevelError:
		l.mu.counts.Errors++
	case k.level >= slog.LevelWarn:
		l.mu.counts.Warnings++
	default:
		l.mu.counts.Infos++
	}
	return true
}

func (l *logLimits) allowedLocked(k logKey) bool {
	a := l.mu.messages[k]
	if a == nil && len(l.mu.messages) >= logMessages {
		l.forgetLocked()
		if len(l.mu.messages) >= logMessages {
			k.message = "messages of many kinds"
			a = l.mu.messages[k]
		}
	}
	now := time.Now()
	if a == nil || a.suppressed == 0 && now.Sub(a.began) >= logWindow {
		a = &logAllowance{began: now}
		l.mu.messages[k] = a
	}
	if a.through < logBurst(k.level) {
		a.through++
		return true
	}
	if a.suppressed++; a.suppressed == 1 {
		time.AfterFunc(logWindow-now.Sub(a.began), func() { l.summarize(k, a) })
	}
	return false
}

// forgetLocked drops the messages whose window is over.
func (l *logLimits) forgetLocked() {
	for k, a := range l.mu.messages {
		if a.suppressed == 0 && time.Since(a.began) >= logWindow {
			delete(l.mu.messages, k)
		}
	}
}

// summarize ends a window in which something was suppressed.
func (l *logLimits) summarize(k logKey, a *logAllowance) {
	l.mu.Lock()
	if l.mu.messages[k] == a {
		delete(l.mu.messages, k)
	}
	n := a.suppressed
	l.mu.Unlock()
	r := slog.NewRecord(time.Now(), k.level, "more lines of a message were left out", 0)
	r.AddAttrs(slog.String("message", k.message), slog.Int("left_out", n), slog.Duration("within", logWindow))
	_ = l.out.Handle(context.Background(), r) // nobody could be told
}

// count is what has been logged so far.
func (l *logLimits) count() fusefs.LogCounts {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.counts
}
