package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"

	"golang.org/x/sys/unix"
)

// workerArgument starts this program as a worker: a client in a process of its
// own, as a rank of an engine is. It takes jobs as JSON lines.
const workerArgument = "worker"

// job is what a worker is to do. It prepares, says so, and waits for the word to
// begin, so that all workers begin together.
type job struct {
	Op    string   `json:"op"`
	Paths []string `json:"paths"`
	Bytes int64    `json:"bytes"` // of a page

	// Op "find"
	Seed      int64 `json:"seed"`
	NumTokens int   `json:"num_tokens"`
	Diverges  int   `json:"diverges"` // tokens from here on are others; 0: none

	// Threads share the paths out, 0 is one thread. Rounds says how often each does its part.
	Threads int `json:"threads"`
	Rounds  int `json:"rounds"`

	UntilStop bool `json:"until_stop"` // go on until the word to stop comes
}

// outcome is how a job went. Times are CLOCK_MONOTONIC in nanoseconds, which
// all processes share.
type outcome struct {
	Ready bool    `json:"ready,omitempty"`
	Start int64   `json:"start"`
	End   int64   `json:"end"`
	Each  []int64 `json:"each"` // of each path
	Echo  []int64 `json:"echo,omitempty"`
	Reply string  `json:"reply,omitempty"`
	Err   string  `json:"err,omitempty"`
}

func runWorker(in io.Reader, out io.Writer) error {
	jobs, outcomes := json.NewDecoder(bufio.NewReader(in)), json.NewEncoder(out)
	c := &clientWork{}
	for {
		var j job
		if err := jobs.Decode(&j); err != nil {
			return nil // the bench has ended
		}
		c.prepare(j)
		if err := outcomes.Encode(outcome{Ready: true}); err != nil {
			return err
		}
		var word string
		if err := jobs.Decode(&word); err != nil {
			return nil
		}
		var o outcome
		if j.UntilStop {
			stop := make(chan struct{})
			go func() { defer close(stop); _ = jobs.Decode(&word) }()
			o = c.doUntil(j, stop)
			<-stop
		} else {
			o = c.do(j)
		}
		if err := outcomes.Encode(o); err != nil {
			return err
		}
	}
}

// clientWork does jobs. Its buffers stand for the memory that an engine has for
// a page: they are there and warm before the clock runs.
type clientWork struct {
	source  []byte // what is written: random, so that nothing can be compressed
	buffer  []byte // what is read goes here
	request []byte
}

func (c *clientWork) prepare(j job) {
	if n := (j.Bytes + 4095) &^ 4095; int64(len(c.buffer)) < n {
		c.source, c.buffer = anonymous(n), anonymous(n)
		random := rand.New(rand.NewPCG(uint64(os.Getpid()), 1))
		for i := 0; i < len(c.source); i += 8 {
			binary.NativeEndian.PutUint64(c.source[i:], random.Uint64())
		}
		copy(c.buffer, c.source)
	}
	switch j.Op {
	case "find":
		c.request = findRequest(j.Seed, j.NumTokens, j.Diverges)
	}
}

// anonymous is memory with huge pages where they are to be had, as engines have.
func anonymous(n int64) []byte {
	b, err := unix.Mmap(-1, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return make([]byte, n)
	}
	unix.Madvise(b, unix.MADV_HUGEPAGE)
	return b
}

func (c *clientWork) do(j job) outcome {
	ops := map[string]func(string, job) error{
		"write": c.write, "read": c.read, "readdirect": c.readDirect, "map": c.mapPage, "mapread": c.mapPage,
		"memcpy": c.memcpy, "drop": dropCache, "find": nil, "rename": nil,
	}
	o := outcome{Start: monotonic()}
	var err error
	switch op, known := ops[j.Op]; {
	case !known:
		err = fmt.Errorf("no operation %q", j.Op)
	case j.Threads > 0:
		err = parallel(j, op)
	case j.Op == "find":
		o.Reply, err = c.find(j.Paths[0])
	case j.Op == "rename":
		err = unix.Renameat2(unix.AT_FDCWD, j.Paths[0], unix.AT_FDCWD, j.Paths[1], unix.RENAME_NOREPLACE)
	default:
		o.Each = make([]int64, 0, len(j.Paths))
		for _, p := range j.Paths {
			began := monotonic()
			if err = op(p, j); err != nil {
				break
			}
			o.Each = append(o.Each, monotonic()-began)
		}
	}
	o.End = monotonic()
	if err != nil {
		o.Err = err.Error()
	}
	return o
}

func monotonic() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return t.Nano()
}

func (c *clientWork) write(path string, j job) error {
	fd, err := open(path, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	for rest := c.source[:j.Bytes]; len(rest) > 0; {
		n, err := unix.Write(fd, rest)
		if err != nil {
			unix.Close(fd)
			return &os.PathError{Op: "write", Path: path, Err: err}
		}
		rest = rest[n:]
	}
	return unix.Close(fd)
}

func (c *clientWork) read(path string, j job) error { return c.readWith(path, j, 0) }

func (c *clientWork) readDirect(path string, j job) error {
	// O_DIRECT wants whole blocks; the end of the file ends the read.
	j.Bytes = (j.Bytes + 4095) &^ 4095
	return c.readWith(path, j, unix.O_DIRECT)
}

func (c *clientWork) readWith(path string, j job, flags int) error {
	fd, err := open(path, unix.O_RDONLY|flags, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for at := int64(0); at < j.Bytes; {
		n, err := unix.Pread(fd, c.buffer[at:j.Bytes], at)
		if err != nil {
			return &os.PathError{Op: "read", Path: path, Err: err}
		}
		if n == 0 {
			break
		}
		at += int64(n)
	}
	return nil
}

// mapPage maps a page as fusefs/client does: the kernel enters all of it into the
// page table at once. Then "map" touches each 4 KiB of it and "mapread" every
// cache line, as a copy would.
func (c *clientWork) mapPage(path string, j job) error {
	fd, err := open(path, unix.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	b, err := unix.Mmap(fd, 0, int(j.Bytes), unix.PROT_READ, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return &os.PathError{Op: "mmap", Path: path, Err: err}
	}
	step := 4096
	if j.Op == "mapread" {
		step = 64
	}
	touch(b, step)
	return unix.Munmap(b)
}

func (c *clientWork) memcpy(_ string, j job) error {
	copy(c.buffer[:j.Bytes], c.source)
	return nil
}

// touch reads every step-th byte.
func touch(b []byte, step int) {
	for i := 0; i < len(b); i += step {
		touched += uint64(b[i])
	}
}

var touched uint64 // so that touch is not compiled away

// dropCache has the kernel forget what it caches of a file, where it caches.
func dropCache(path string, _ job) error {
	fd, err := open(path, unix.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED)
}

func (c *clientWork) find(path string) (string, error) {
	fd, err := open(path, unix.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	for rest := c.request; len(rest) > 0; {
		n, err := unix.Write(fd, rest)
		if err != nil {
			return "", &os.PathError{Op: "write", Path: path, Err: err}
		}
		rest = rest[n:]
	}
	reply := make([]byte, 4096)
	n, err := unix.Read(fd, reply)
	if err != nil {
		return "", &os.PathError{Op: "read", Path: path, Err: err}
	}
	return string(bytes.TrimSpace(reply[:n])), nil
}

func open(path string, flags int, mode uint32) (int, error) {
	for {
		fd, err := unix.Open(path, flags|unix.O_CLOEXEC, mode)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return -1, &os.PathError{Op: "open", Path: path, Err: err}
		}
		return fd, nil
	}
}
