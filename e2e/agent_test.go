package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// A client process is this test program again, with roleEnv naming what it
// does. It takes requests as JSON from its standard input and answers on its
// standard output. Tests use one where a process has to be killed, to have
// another uid, to keep a mapping, or to run beside others.

const roleEnv = "CKPTFS_E2E_ROLE"

// request is one call that a client process makes.
type request struct {
	Op     string      `json:"op"`
	Path   string      `json:"path,omitempty"`
	To     string      `json:"to,omitempty"`
	Flags  int         `json:"flags,omitempty"`
	Mode   uint32      `json:"mode,omitempty"`
	FD     int         `json:"fd,omitempty"`
	Off    int64       `json:"off,omitempty"`
	Len    int64       `json:"len,omitempty"`
	Rank   int         `json:"rank,omitempty"`
	Copy   int         `json:"copy,omitempty"`
	Copies []int       `json:"copies,omitempty"`
	Seed   uint64      `json:"seed,omitempty"`
	Data   []byte      `json:"data,omitempty"`
	Page   *wirePage   `json:"page,omitempty"`
	Gen    *generation `json:"gen,omitempty"`
}

// wirePage is a page in a request.
type wirePage struct {
	Path  string `json:"path"`
	Bytes int64  `json:"bytes"`
	Key   string `json:"key"`
}

func wire(p page) *wirePage      { return &wirePage{Path: p.path, Bytes: p.bytes, Key: p.key.hex()} }
func (w *wirePage) page() page   { return page{path: w.Path, bytes: w.Bytes, key: hexDigest(w.Key)} }
func (r *request) args() argList { return argList{r} }

// argList only shortens the text of a failed request.
type argList struct{ r *request }

func (a argList) String() string { return fmt.Sprintf("%s %s %s", a.r.Op, a.r.Path, a.r.To) }

// reply is what the call returned.
type reply struct {
	Errno int    `json:"errno"`
	Err   string `json:"err,omitempty"`
	N     int64  `json:"n,omitempty"`
	Data  []byte `json:"data,omitempty"`
}

// err returns the reply's error; it carries the errno.
func (r reply) err() error {
	if r.Err == "" {
		return nil
	}
	if e := syscall.Errno(r.Errno); e != 0 {
		return fmt.Errorf("%s: %w", r.Err, e)
	}
	return fmt.Errorf("%s", r.Err)
}

func replyErr(err error) reply {
	if err == nil {
		return reply{}
	}
	r := reply{Err: err.Error()}
	if e := errnoOf(err); e != ^syscall.Errno(0) {
		r.Errno = int(e)
	}
	return r
}

// agent is the test's end of a client process.
type agent struct {
	t    testing.TB
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *os.File
	enc  *json.Encoder
	dec  *json.Decoder
	gone bool
}

// spawn starts a client process with a role; uid 0 keeps the test's own.
func spawn(t testing.TB, role string, uid uint32) *agent {
	t.Helper()
	a, err := startAgent(role, uid, suite.self)
	must(t, err)
	a.t = t
	t.Cleanup(a.end)
	return a
}

// startAgent is spawn for client processes that have clients of their own, or that another program starts.
func startAgent(role string, uid uint32, program ...string) (*agent, error) {
	cmd := exec.Command(program[0], program[1:]...)
	cmd.Env = append(os.Environ(), roleEnv+"="+role)
	cmd.Dir, cmd.Stderr = "/", os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if uid != 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uid, Gid: uid}
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer w.Close()
	cmd.Stdout = w
	if err := cmd.Start(); err != nil {
		r.Close()
		return nil, err
	}
	return &agent{cmd: cmd, in: in, out: r, enc: json.NewEncoder(in), dec: json.NewDecoder(r)}, nil
}

// newAgent starts a process that does single calls on request.
func newAgent(t testing.TB) *agent { t.Helper(); return spawn(t, "agent", 0) }

// send makes the process begin a call without waiting for it.
func (a *agent) send(r request) {
	a.t.Helper()
	if err := a.enc.Encode(&r); err != nil {
		a.t.Fatalf("%v: %v", r.args(), err)
	}
}

// receive waits for the answer to the oldest call sent.
func (a *agent) receive() reply {
	a.t.Helper()
	var rep reply
	a.out.SetReadDeadline(time.Now().Add(2 * patience))
	if err := a.dec.Decode(&rep); err != nil {
		a.t.Fatalf("no answer from the client process: %v", err)
	}
	return rep
}

func (a *agent) call(r request) reply {
	a.t.Helper()
	a.send(r)
	return a.receive()
}

// do is call for callers who expect success.
func (a *agent) do(r request) reply {
	a.t.Helper()
	rep := a.call(r)
	if err := rep.err(); err != nil {
		a.t.Fatalf("%v: %v", r.args(), err)
	}
	return rep
}

// kill ends the process with SIGKILL and waits until it is gone.
func (a *agent) kill() {
	a.cmd.Process.Kill()
	a.finish()
}

// end lets the process end by itself.
func (a *agent) end() {
	if a.gone {
		return
	}
	a.in.Close()
	timer := time.AfterFunc(patience, func() { a.cmd.Process.Kill() })
	defer timer.Stop()
	a.finish()
}

// finish waits until the process is gone. One that waits for an answer which
// never comes cannot even be killed before its mount is aborted.

func (a *agent) finish() {
	if !a.gone {
		a.gone = true
		a.in.Close()
		timer := time.AfterFunc(2*patience, abortMounts)
		defer timer.Stop()
		a.cmd.Wait()
		a.out.Close()
	}
}

// runRole is main in a client process.
func runRole(role string) int {
	f, ok := roles()[role]
	if !ok {
		fmt.Fprintf(os.Stderr, "no role %q\n", role)
		return 2
	}
	in := json.NewDecoder(os.Stdin)
	in.UseNumber() // or integers in free-form objects would come as floats
	f(in, json.NewEncoder(os.Stdout))
	return 0
}

type roleFunc func(in *json.Decoder, out *json.Encoder)

func roles() map[string]roleFunc {
	return map[string]roleFunc{"agent": agentRole, "load": loadRole}
}
