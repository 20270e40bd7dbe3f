package main

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestTurnstile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s turnstile
		if !s.enter() || !s.enter() {
			t.Fatal("it is closed from the beginning")
		}
		if s.hold(time.Second) {
			t.Error("two are inside, and hold says that nobody is")
		}
		if s.enter() {
			t.Error("it lets in after hold")
		}
		go func() {
			time.Sleep(time.Minute)
			s.leave()
			s.leave()
		}()
		began := time.Now()
		if !s.hold(time.Hour) || time.Since(began) != time.Minute {
			t.Errorf("hold took %v, want until the last has left", time.Since(began))
		}
		if !s.hold(0) && !s.hold(time.Nanosecond) {
			t.Error("a further hold finds somebody inside")
		}
	})
	if s := new(turnstile); !s.hold(time.Hour) {
		t.Error("nobody was ever inside")
	}
}
