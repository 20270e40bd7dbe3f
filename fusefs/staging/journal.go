package staging

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"ckptfs/index"
	"ckptfs/pages"
)

// record is one line of a staging's journal. The journal is the staging: what
// is not in it has not happened, and a daemon that was killed reads it back.
// It lives on the RAM tier's tmpfs, so a line costs a copy in memory; a line
// that was cut off by a kill is dropped.
type record struct {
	Do string   `json:"do"`
	Op index.Op `json:"op,omitempty"` // the kernel's request, so that it is not done twice

	// do = "new"
	ID       index.ObjectID `json:"id,omitempty"`
	Identity index.ObjectID `json:"identity,omitempty"`
	Name     []byte         `json:"name,omitempty"` // any bytes, so not a JSON string
	Ghost    bool           `json:"ghost,omitempty"`

	// directories, pages, scratch files
	Place *Place      `json:"place,omitempty"`
	Slot  int         `json:"slot,omitempty"`
	Page  *stagedPage `json:"page,omitempty"`
	TID   uint32      `json:"tid,omitempty"` // the thread that made it
	// do = "drop": the slot's bytes stay reserved
	Reserve bool `json:"reserve,omitempty"`

	// do = "link": pages by slot, published or staged by another
	Links []link `json:"links,omitempty"`

	// do = "attr"
	Sub  uint64      `json:"sub,omitempty"`
	Attr *index.Attr `json:"attr,omitempty"`

	// do = "hide": a made file that was unlinked
	File string `json:"file,omitempty"`
}

type link struct {
	Slot int         `json:"s"`
	ID   pages.ID    `json:"p"`
	Page *stagedPage `json:"staged,omitempty"` // nil: published
}

const (
	doNew       = "new"
	doMkdir     = "mkdir"
	doRmdir     = "rmdir"
	doManifest  = "manifest"
	doPage      = "page"
	doLink      = "link"
	doDrop      = "drop"
	doScratch   = "scratch"
	doUnscratch = "unscratch"
	doPlaceAt   = "place" // a scratch file takes its position
	doAttr      = "attr"
	doHide      = "hide"
	doPublish   = "publish"
	doError     = "error" // the reason of a refusal
)

// journal appends records to a staging's journal file.
type journal struct {
	f     *os.File
	bytes int64
	most  int64 // bytes beyond which nothing is made any more
}

// The journal lies in RAM that nobody has reserved, so a client that makes and
// removes things for ever must not make it grow for ever. What is normal is far
// below: a page is some 300 bytes.
const (
	maxJournal        = 64 << 20
	maxJournalPerPage = 4 << 10 // once the manifest tells how many there are
)

// makes reports whether a record makes something. Removing always works.
func (r *record) makes() bool {
	switch r.Do {
	case doMkdir, doPage, doScratch, doAttr, doError:
		return true
	}
	return false
}

// allow lets the journal grow with the pages of the manifest.
func (j *journal) allow(pages int) { j.most = maxJournal + maxJournalPerPage*int64(pages) }

// createJournal makes the staging's directory with a journal of one record. It
// is there whole or not at all.
func createJournal(dir string, first ...record) (*journal, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	tmp := filepath.Join(dir, "journal.tmp")
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_RDWR|os.O_APPEND|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	j := &journal{f: f, most: maxJournal}
	if err := j.append(first...); err != nil {
		f.Close()
		return nil, err
	}
	return j, nil
}

// commit gives the journal its name: from here on the staging exists.
func (j *journal) commit(dir string) error {
	return os.Rename(filepath.Join(dir, "journal.tmp"), filepath.Join(dir, "journal"))
}

// append writes the records with one write. ENOSPC if the staging has been
// changed too often.
func (j *journal) append(rs ...record) error {
	if j.bytes > j.most && slices.ContainsFunc(rs, func(r record) bool { return r.makes() }) {
		return refuse(syscall.ENOSPC, "the staging has been changed too often: remove it and begin again")
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	for i := range rs {
		if err := enc.Encode(&rs[i]); err != nil {
			return err
		}
	}
	n, err := j.f.Write(b.Bytes())
	if err != nil && n > 0 {
		// Half a line must not spoil the next one.
		if st, serr := j.f.Stat(); serr == nil {
			err = errors.Join(err, j.f.Truncate(st.Size()-int64(n)))
		}
	}
	if err == nil {
		j.bytes += int64(n)
	}
	return err
}

// openJournal reads a journal back and opens it for more. A last line that was
// cut off is removed. fs.ErrNotExist if the staging was never made whole.
func openJournal(dir string) (*journal, []record, error) {
	path := filepath.Join(dir, "journal")
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	var rs []record
	good := 0
	for good < len(raw) {
		end := bytes.IndexByte(raw[good:], '\n')
		var r record
		if end < 0 || json.Unmarshal(raw[good:good+end], &r) != nil {
			break
		}
		rs = append(rs, r)
		good += end + 1
	}
	if len(rs) == 0 || rs[0].Do != doNew {
		return nil, nil, fmt.Errorf("%s has no beginning: %w", path, fs.ErrNotExist)
	}
	if err := os.Truncate(path, int64(good)); err != nil {
		return nil, nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND, 0o600)
	return &journal{f: f, bytes: int64(good), most: maxJournal}, rs, err
}

func (j *journal) close() { j.f.Close() }
