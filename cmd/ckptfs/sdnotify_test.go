package main

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestServiceManager(t *testing.T) {
	abstract := "@ckptfs-test-" + strconv.Itoa(os.Getpid())
	for _, name := range []string{filepath.Join(t.TempDir(), "notify"), abstract} {
		conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		env := map[string]string{"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "3000000"}
		m := newServiceManager(func(k string) string { return env[k] })
		if m.watchdog != 3*time.Second {
			t.Errorf("watchdog is %v, want 3s", m.watchdog)
		}
		for _, c := range []struct {
			send func() error
			want string
		}{
			{func() error { return m.ready("mounted") }, "READY=1\nSTATUS=mounted"},
			{m.reloading, "RELOADING=1\nMONOTONIC_USEC="},
			{m.alive, "WATCHDOG=1"},
			{m.stopping, "STOPPING=1"},
		} {
			if err := c.send(); err != nil {
				t.Fatal(err)
			}
			buf := make([]byte, 1024)
			n, err := conn.Read(buf)
			if err != nil || !strings.HasPrefix(string(buf[:n]), c.want) {
				t.Errorf("received %q, %v; want %q", buf[:n], err, c.want)
			}
		}
	}
}

func TestServiceManagerNotAsked(t *testing.T) {
	m := newServiceManager(func(string) string { return "" })
	if err := m.ready("mounted"); err != nil || m.watchdog != 0 {
		t.Errorf("ready: %v, watchdog %v", err, m.watchdog)
	}
	env := map[string]string{"WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"}
	if m := newServiceManager(func(k string) string { return env[k] }); m.watchdog != 0 {
		t.Errorf("a watchdog meant for process 1 was taken")
	}
}

// TestServiceManagerThatDoesNotRead: the keeper waits for nobody.
func TestServiceManagerThatDoesNotRead(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	must(t, err)
	defer conn.Close()
	m := serviceManager{socket: socket}
	told := make(chan error)
	go func() {
		var err error
		for n := 0; n < 10000 && err == nil; n++ {
			err = m.alive()
		}
		told <- err
	}()
	select {
	case err := <-told:
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the error is %v", err)
		}
	case <-time.After(patience):
		t.Error("a message is still on its way")
	}
}
