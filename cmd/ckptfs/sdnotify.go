package main

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// serviceManager tells systemd what this process is about, by the protocol of sd_notify(3). The zero value is for a
// process that nobody asked: every call does nothing.
type serviceManager struct {
	socket   string        // path, or '@' and an abstract name
	watchdog time.Duration // 0: no ping is expected; else one at least this often
}

// startPatience is how long a start may go on after it was last heard of. Many pings fit into it.
const startPatience = time.Minute

// notifyLimit bounds a message to a service manager that does not read. The keeper has more to do than to wait for it.
const notifyLimit = 200 * time.Millisecond

// newServiceManager reads what the service manager asked for from the environment, by way of getenv (os.Getenv).
func newServiceManager(getenv func(string) string) serviceManager {
	m := serviceManager{socket: getenv("NOTIFY_SOCKET")}
	if pid := getenv("WATCHDOG_PID"); pid == "" || pid == strconv.Itoa(os.Getpid()) {
		if usec, err := strconv.ParseInt(getenv("WATCHDOG_USEC"), 10, 64); err == nil && usec > 0 {
			m.watchdog = time.Duration(usec) * time.Microsecond
		}
	}
	return m
}

func (m serviceManager) ready(status string) error { return m.send("READY=1\nSTATUS=" + status) }

// starting asks for startPatience more before the start counts as failed: an index is being made anew, say.
func (m serviceManager) starting() error {
	return m.send(fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", startPatience.Microseconds()))
}

func (m serviceManager) stopping() error          { return m.send("STOPPING=1\nSTATUS=stopping") }
func (m serviceManager) alive() error             { return m.send("WATCHDOG=1") }
func (m serviceManager) status(text string) error { return m.send("STATUS=" + text) }

// reloading announces an upgrade; ready ends it. Type=notify-reload wants the monotonic time with it.
func (m serviceManager) reloading() error {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return err
	}
	return m.send(fmt.Sprintf("RELOADING=1\nMONOTONIC_USEC=%d\nSTATUS=upgrading", now.Nano()/1000))
}

func (m serviceManager) send(state string) error {
	if m.socket == "" {
		return nil
	}
	// A name that begins with '@' is abstract; package net takes it in just that form.
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: m.socket, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("NOTIFY_SOCKET: %w", err)
	}
	defer conn.Close()
	if err := conn.SetWriteDeadline(time.Now().Add(notifyLimit)); err != nil {
		return fmt.Errorf("NOTIFY_SOCKET: %w", err)
	}
	_, err = conn.Write([]byte(state))
	return err
}
