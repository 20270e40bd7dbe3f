package main

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ckptfs/fusefs"
)

func TestLogFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		h := limitLog(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
		log := slog.New(h)
		for n := range 1000 {
			log.With("n", n).Warn("the disk is slow")
			log.Info("retired")
			log.Debug("detail")
		}
		log.Error("once")
		for message, want := range map[string]int{"the disk is slow": 20, "retired": 200, "detail": 1000, "once": 1} {
			if n := strings.Count(out.String(), message); n != want {
				t.Errorf("%q was logged %d times, want %d", message, n, want)
			}
		}
		if c := h.limits.count(); c != (fusefs.LogCounts{Infos: 200, Warnings: 20, Errors: 1, Suppressed: 980 + 800}) {
			t.Errorf("counted %+v", c)
		}
		time.Sleep(logWindow)
		synctest.Wait()
		for _, want := range []string{
			`level=WARN msg="more lines of a message were left out" message="the disk is slow" left_out=980 within=10s`,
			`level=INFO msg="more lines of a message were left out" message=retired left_out=800 within=10s`,
		} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("no line %s", want)
			}
		}
		out.Reset()
		log.Warn("the disk is slow")
		if !strings.Contains(out.String(), "the disk is slow") {
			t.Error("in the next window it is still suppressed")
		}
	})
}

// TestLogManyMessages: messages that are different each time are limited too, in bounded memory.
func TestLogManyMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		h := limitLog(slog.NewTextHandler(&out, nil))
		log := slog.New(h)
		for n := range 10000 {
			log.Warn(fmt.Sprint("message ", n))
		}
		if n := strings.Count(out.String(), "\n"); n > logMessages+20 {
			t.Errorf("%d lines", n)
		}
		h.limits.mu.Lock()
		n := len(h.limits.mu.messages)
		h.limits.mu.Unlock()
		if n > logMessages+1 {
			t.Errorf("%d messages are remembered", n)
		}
		time.Sleep(2 * logWindow)
		synctest.Wait() // the summary has been written
		out.Reset()
		log.Warn("later")
		if !strings.Contains(out.String(), "later") {
			t.Error("nothing gets through any more")
		}
	})
}
