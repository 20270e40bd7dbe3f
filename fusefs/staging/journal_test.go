package staging

import (
	"errors"
	"path/filepath"
	"syscall"
	"testing"
)

// TestJournalIsBounded: a client that makes and removes for ever is stopped, can
// still remove everything, and finds it so after a restart.
func TestJournalIsBounded(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	j, err := createJournal(dir, record{Do: doNew, ID: 7})
	if err != nil {
		t.Fatal(err)
	}
	if err := j.commit(dir); err != nil {
		t.Fatal(err)
	}
	j.most = 10_000
	p := Place{Level: LevelRank, Rank: 1}
	made := 0
	for err == nil && made < 10_000 {
		if err = j.append(record{Do: doMkdir, Place: &p}); err == nil {
			made++
			err = j.append(record{Do: doRmdir, Place: &p})
		}
	}
	var refused *Error
	if !errors.As(err, &refused) || !errors.Is(err, syscall.ENOSPC) || made < 10 || made == 10_000 {
		t.Fatalf("%d made, then %v", made, err)
	}
	for _, do := range []string{doRmdir, doDrop, doUnscratch, doHide} {
		if err := j.append(record{Do: do, Place: &p}); err != nil {
			t.Errorf("%s: %v", do, err)
		}
	}
	size := j.bytes
	j.close()
	again, rs, err := openJournal(dir)
	if err != nil || len(rs) != 1+2*made+4 || again.bytes != size || again.most != maxJournal {
		t.Errorf("%d records, %d of %d bytes, %v", len(rs), again.bytes, size, err)
	}
	again.allow(1000)
	if err := again.append(record{Do: doMkdir, Place: &p}); err != nil {
		t.Error(err)
	}
	again.close()
}
