package main

import (
	"strings"
	"testing"
)

func TestParseMountInfo(t *testing.T) {
	const text = `22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
40 22 0:35 / /mnt/my\040mount rw,nosuid,nodev - fuse.ckptfs ckptfs rw,user_id=0
41 40 0:36 / /mnt/my\040mount rw shared:3 master:1 - tmpfs a\134b rw
`
	table, err := parseMountInfo(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	at := mountsAt(table, "/mnt/my mount")
	if len(at) != 2 || at[0].id != 40 || !at[0].isFUSE() || at[0].device != "0:35" || at[1].isFUSE() || at[1].source != `a\b` {
		t.Errorf("mountsAt = %+v", at)
	}
	if len(mountsAt(table, "/mnt")) != 0 {
		t.Errorf("/mnt is no mount point")
	}
	if _, err := parseMountInfo(strings.NewReader("nonsense\n")); err == nil {
		t.Errorf("nonsense was accepted")
	}
}

func TestMountTableHasRoot(t *testing.T) {
	table, err := mountTable()
	if err != nil {
		t.Fatal(err)
	}
	if len(mountsAt(table, "/")) == 0 {
		t.Errorf("no mount at / in %+v", table)
	}
}
