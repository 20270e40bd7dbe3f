package fusefs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// Order is what is written to .ckptfs/control: one line of JSON.
type Order struct {
	Do    string `json:"do"`    // clear, drop-ram
	Path  string `json:"path"`  // clear: below what, relative to the mount; "" is all
	Force bool   `json:"force"` // clear: everything or nothing
}

// Report is what is read from it, one line of JSON each time: how far the order
// is, until it is done. A handle carries out one order at a time; closing it ends
// the order. An order may be given again at any time, it then does what is left.
type Report struct {
	Done  bool   `json:"done"`
	Error string `json:"error,omitempty"` // why it was refused, or not all of it could be done
	Code  string `json:"code,omitempty"`  // of the error: busy, not-found, invalid, failed

	Clear   *ClearReport   `json:"clear,omitempty"`
	DropRAM *DropRAMReport `json:"drop_ram,omitempty"`
}

// The codes of reports.
const (
	CodeBusy     = "busy"      // something is leased
	CodeNotFound = "not-found" // there is no such path
	CodeInvalid  = "invalid"   // the order makes no sense
	CodeFailed   = "failed"    // something could not be done
)

// refusal is an error with the code of a report.
type refusal struct {
	code string
	error
}

func (r *Report) fail(err error) {
	r.Error, r.Code = err.Error(), CodeFailed
	var refused refusal
	if errors.As(err, &refused) {
		r.Code = refused.code
	}
}

// job is an order that is being carried out for a handle. A daemon that is
// replaced forgets it: the next read is ESTALE, and the order is given again.
type job struct {
	cancel context.CancelFunc
	ended  chan struct{} // nil: there is no order

	mu     sync.Mutex
	report Report // what is known so far
	unread []byte // of the line that is being read
	told   bool   // the last line has been made
}

const (
	// maxOrder bounds an order, bytes.
	maxOrder = 64 << 10
	// reportEvery is how long a read waits for the end of an order before it tells
	// how far that is. It is short, because nobody can interrupt a read.
	reportEvery = 300 * time.Millisecond
)

func (fs *FS) openCommand(in *fuse.InHeader, flags uint32, out *fuse.OpenOut) error {
	h, err := fs.openHandle(in, nodeCommand, flags&^syscall.O_TRUNC, 0)
	if err != nil {
		return err
	}
	h.job = &job{} // none yet
	out.Fh, out.OpenFlags = h.number(), fuse.FOPEN_DIRECT_IO|fuse.FOPEN_NONSEEKABLE|fuse.FOPEN_NOFLUSH
	return nil
}

// writeCommand begins an order. EINVAL if it is none, EBUSY while one is carried
// out.
func (fs *FS) writeCommand(h *handle, data []byte) (uint32, fuse.Status) {
	var o Order
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&o); err != nil || len(data) > maxOrder || o.Do != "clear" && o.Do != "drop-ram" {
		return 0, fuse.EINVAL
	}
	h.file.mu.Lock()
	defer h.file.mu.Unlock()
	if h.job != nil && h.job.ended != nil && !h.job.over() {
		return 0, fuse.EBUSY
	}
	ctx, cancel := context.WithCancel(fs.background)
	j := &job{cancel: cancel, ended: make(chan struct{})}
	h.job = j
	fs.log.Info("an order was given", "do", o.Do, "path", o.Path, "force", o.Force, "thread", h.rec.pid)
	fs.wg.Go(func() {
		defer close(j.ended)
		defer cancel()
		fs.carryOut(ctx, o, j)
	})
	return uint32(len(data)), fuse.OK
}

func (fs *FS) carryOut(ctx context.Context, o Order, j *job) {
	var err error
	switch o.Do {
	case "clear":
		err = fs.clear(ctx, o.Path, o.Force, func(r ClearReport) { j.set(func(to *Report) { to.Clear = &r }) })
	case "drop-ram":
		err = fs.dropRAM(ctx, func(r DropRAMReport) { j.set(func(to *Report) { to.DropRAM = &r }) })
	}
	j.set(func(to *Report) {
		if to.Done = true; err != nil {
			to.fail(err)
		}
	})
}

func (j *job) set(change func(*Report)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	change(&j.report)
}

// over reports whether the order has ended.
func (j *job) over() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.report.Done
}

// readCommand reads the next report; nothing more comes after the last.
func (fs *FS) readCommand(h *handle, buf []byte) (fuse.ReadResult, fuse.Status) {
	h.file.mu.Lock()
	j := h.job
	h.file.mu.Unlock()
	switch {
	case j == nil: // a handle of a former daemon
		return nil, fuse.Status(syscall.ESTALE)
	case j.ended == nil: // no order was given
		return nil, fuse.EINVAL
	}
	b, err := j.next(buf)
	return fuse.ReadResultData(b), status(fs.log, err)
}

// next is what a reader gets: the rest of a line, or the beginning of a new one.
func (j *job) next(buf []byte) ([]byte, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.unread) == 0 && !j.told {
		j.mu.Unlock()
		select {
		case <-j.ended:
		case <-time.After(reportEvery):
		}
		j.mu.Lock()
		line, err := json.Marshal(j.report)
		if err != nil {
			return nil, err
		}
		j.unread, j.told = append(line, '\n'), j.report.Done
	}
	n := copy(buf, j.unread)
	j.unread = j.unread[n:]
	return buf[:n], nil
}

// endJob is called when a handle is closed: what is under way is given up.
func (h *handle) endJob() {
	h.file.mu.Lock()
	defer h.file.mu.Unlock()
	if h.job != nil && h.job.ended != nil {
		h.job.cancel()
	}
}
