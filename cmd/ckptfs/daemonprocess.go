package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The descriptors that the daemon is born with, besides stdin, stdout and stderr.
const (
	daemonFuseFD    = 3 // /dev/fuse
	daemonServeFD   = 4 // where the INIT waits; /dev/fuse takes its place afterwards
	daemonControlFD = 5 // the socket to the keeper
	daemonCrashFD   = 6 // takes what the Go runtime says when it crashes
	daemonMetricsFD = 7 // listens for who wants metrics; only with --metrics-addr
)

// daemonProcess is a running daemon, seen from the keeper. Everything that it does arrives as an event.
type daemonProcess struct {
	cmd     *exec.Cmd
	control *controlConn
	init    *os.File // the keeper's end of the pair on which the INIT waits
	crash   *os.File // a memory file, see daemonCrashFD
	events  chan daemonEvent
}

// daemonEvent is one of: the reply to INIT, a message, the end. The end is the last and comes after all others.
type daemonEvent struct {
	reply initReply
	msg   *message
	ended *os.ProcessState
}

// startDaemon runs the binary at execPath as a daemon that serves what comes out of dev, and metrics if that is not
// nil. The caller must have locked
// its goroutine to its thread and stay on it: the daemon is killed when that thread ends.
func startDaemon(execPath string, cfg *daemonConfig, dev, metrics *os.File, init initPacket, stderr io.Writer) (*daemonProcess, error) {
	ours, theirs, err := socketPair(unix.SOCK_SEQPACKET)
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	ourControl, theirControl, err := socketPair(unix.SOCK_STREAM)
	if err != nil {
		ours.Close()
		return nil, err
	}
	defer theirControl.Close()
	crash, err := memoryFile("ckptfs-crash")
	if err != nil {
		ours.Close()
		ourControl.Close()
		return nil, err
	}
	p := &daemonProcess{
		cmd:     daemonCommand(execPath, cfg, stderr),
		control: newControlConn(ourControl),
		init:    ours,
		crash:   crash,
		events:  make(chan daemonEvent, 16),
	}
	p.cmd.ExtraFiles = []*os.File{dev, theirs, theirControl, crash} // daemonFuseFD and on
	if metrics != nil {
		p.cmd.ExtraFiles = append(p.cmd.ExtraFiles, metrics)
	}
	_, err = ours.Write(init)
	if err == nil {
		err = p.control.send(message{Op: opConfig, Config: cfg})
	}
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		p.closeFiles()
		return nil, fmt.Errorf("starting the daemon: %w", err)
	}
	go p.watch()
	return p, nil
}

func daemonCommand(execPath string, cfg *daemonConfig, stderr io.Writer) *exec.Cmd {
	cmd := exec.Command(execPath, daemonVerb, cfg.Mountpoint)
	cmd.Args[0] = "ckptfs"
	cmd.Stderr = stderr
	for _, v := range os.Environ() {
		// The service manager is the keeper's to talk to.
		if name, _, _ := strings.Cut(v, "="); name != "NOTIFY_SOCKET" && name != "WATCHDOG_USEC" && name != "WATCHDOG_PID" {
			cmd.Env = append(cmd.Env, v)
		}
	}
	// A process group of its own: what a terminal sends goes to the keeper alone.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	return cmd
}

// watch turns what the process does into events until it has ended.
func (p *daemonProcess) watch() {
	var readers sync.WaitGroup
	readers.Go(func() {
		buf := make([]byte, 4096)
		if n, err := p.init.Read(buf); err == nil && n > 0 {
			p.events <- daemonEvent{reply: buf[:n]}
		}
	})
	readers.Go(func() {
		for {
			m, err := p.control.receive()
			if err != nil {
				break
			}
			p.events <- daemonEvent{msg: &m}
		}
		// Without its control socket a daemon is of no use.
		p.kill()
	})
	readers.Wait()
	state, err := p.cmd.Process.Wait()
	if err != nil {
		state = nil
	}
	p.events <- daemonEvent{ended: state}
	close(p.events)
}

// kill is SIGKILL. The end arrives as an event.
func (p *daemonProcess) kill() { p.cmd.Process.Kill() }

// killHung first lets the Go runtime write down where every goroutine is.
func (p *daemonProcess) killHung() {
	p.cmd.Process.Signal(unix.SIGQUIT)
	time.AfterFunc(time.Second, p.kill)
}

func (p *daemonProcess) pid() int { return p.cmd.Process.Pid }

// epitaph says how the process ended, with the first line of a crash if there was one.
func (p *daemonProcess) epitaph(state *os.ProcessState) string {
	text := "it ended in an unknown way"
	if state != nil {
		text = state.String()
	}
	buf := make([]byte, 4096)
	n, err := p.crash.ReadAt(buf, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return text
	}
	if line, _, _ := bytes.Cut(bytes.TrimSpace(buf[:n]), []byte("\n")); len(line) > 0 {
		text += ": " + string(line)
	}
	return text
}

func (p *daemonProcess) closeFiles() {
	p.init.Close()
	p.control.file.Close()
	p.crash.Close()
}

// socketPair makes two connected sockets: ours with deadlines, theirs blocking, as the child expects it.
func socketPair(kind int) (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		unix.Close(fds[0])
		unix.Close(fds[1])
		return nil, nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(fds[0]), "keeper"), os.NewFile(uintptr(fds[1]), "daemon"), nil
}

func memoryFile(name string) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}
