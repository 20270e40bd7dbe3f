package index

import (
	"database/sql/driver"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestLogIsBounded commits while some read or other is always under way, so
// that SQLite finds no instant in which the log could begin again.
func TestLogIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "index.db")
	const bound = 1 << 20
	x, err := Open(path, Options{LogBytes: bound})
	if err != nil {
		t.Fatal(err)
	}
	defer mustClose(t, x)
	i := newIdentity(t, x, "")
	stop := readWithoutPause(x)
	text := strings.Repeat("x", 1<<10)
	var longest int64
	for range 60 {
		for range 100 {
			x.Note(&Generation{Identity: i, Name: "g"}, 1, text)
		}
		if err := x.FlushTouched(); err != nil {
			t.Fatal(err)
		}
		if err := x.Checkpoint(); err != nil {
			t.Fatal(err)
		}
		longest = max(longest, logSize(t, path))
	}
	stop()
	if longest > bound+bound/2 {
		t.Errorf("the log has grown to %d bytes, its bound is %d", longest, bound)
	}
	before := logSize(t, path)
	if err := x.Checkpoint(); err != nil || logSize(t, path) > before {
		t.Errorf("a checkpoint of nothing: %v", err)
	}
}

// readWithoutPause begins a read before the one before ends, until stop. One
// ends without the other only if that is kept from beginning.
func readWithoutPause(x *Index) (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	read := func() (begun, end chan struct{}) {
		begun, end = make(chan struct{}), make(chan struct{})
		wg.Go(func() {
			_ = x.readers.read(func(c *conn) error {
				return c.query("SELECT count(*) FROM history", func([]driver.Value) error {
					close(begun)
					<-end
					return nil
				})
			})
		})
		return begun, end
	}
	wg.Go(func() {
		begun, end := read()
		for {
			<-begun
			time.Sleep(2 * time.Millisecond) // a read over several commits
			var next chan struct{}
			begun, next = read()
			select {
			case <-begun:
			case <-time.After(5 * time.Millisecond): // reads are paused
			}
			close(end)
			end = next
			select {
			case <-done:
				close(end)
				return
			default:
			}
		}
	})
	return func() { close(done); wg.Wait() }
}

func logSize(t *testing.T, path string) int64 {
	t.Helper()
	st, err := os.Stat(path + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	return st.Size()
}
