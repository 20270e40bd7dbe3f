package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
)

const (
	blockBytes = 4096
	// windows is how many different pages one template gives before the stamps.
	windows = 256
	// stampBytes is the part of a block that names its page and place.
	stampBytes = 32
)

// pageName is what the bytes of a page depend on.
type pageName struct {
	conversation   int
	group          string
	rank, position int
	end            int // number of tokens at the boundary of the page
}

// pattern makes pages that describe themselves: random bytes, in every 4 KiB
// block a stamp of page and offset, so that foreign or misplaced bytes are seen.
// To be fast enough not to be what is measured, a page is a window of one
// template; only the stamps are written anew.
type pattern struct {
	template  []byte
	pageBytes int
}

func newPattern(pageBytes int64) *pattern {
	blocks := (pageBytes + blockBytes - 1) / blockBytes
	p := &pattern{template: make([]byte, (blocks+windows)*blockBytes), pageBytes: int(pageBytes)}
	// Read of a ChaCha8 never fails.
	_, _ = rand.NewChaCha8([32]byte{'c', 'k', 'p', 't', 'f', 's'}).Read(p.template)
	return p
}

// page returns the bytes of a page. They are good until the next call.
func (p *pattern) page(name pageName) []byte {
	seed := name.seed()
	page := p.template[int(seed%windows)*blockBytes:][:p.pageBytes]
	var stamp [stampBytes]byte
	for block := 0; block*blockBytes < len(page); block++ { // also the part of one at the end: another page may have stamped there
		binary.LittleEndian.PutUint64(stamp[0:], seed)
		binary.LittleEndian.PutUint64(stamp[8:], uint64(block))
		binary.LittleEndian.PutUint32(stamp[16:], uint32(name.rank))
		binary.LittleEndian.PutUint32(stamp[20:], uint32(name.position))
		binary.LittleEndian.PutUint64(stamp[24:], mix(seed+uint64(block)))
		copy(page[block*blockBytes:], stamp[:])
	}
	return page
}

// check compares every byte of a page.
func (p *pattern) check(name pageName, got []byte) error {
	want := p.page(name)
	if bytes.Equal(got, want) {
		return nil
	}
	if len(got) != len(want) {
		return fmt.Errorf("page %+v has %d bytes instead of %d", name, len(got), len(want))
	}
	at := 0
	for got[at] == want[at] {
		at++
	}
	return fmt.Errorf("page %+v is wrong from byte %d%s", name, at, foreignStamp(got[at/blockBytes*blockBytes:]))
}

// foreignStamp tells what a wrong block says about itself.
func foreignStamp(block []byte) string {
	if len(block) < stampBytes {
		return ""
	}
	return fmt.Sprintf(": the stamp there says rank %d, position %d, block %d",
		binary.LittleEndian.Uint32(block[16:]), binary.LittleEndian.Uint32(block[20:]), binary.LittleEndian.Uint64(block[8:]))
}

func (n pageName) seed() uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d/%s/%d/%d/%d", n.conversation, n.group, n.rank, n.position, n.end)
	return h.Sum64()
}

// mix is the finalizer of SplitMix64 (Steele, Lea, Flood: Fast Splittable
// Pseudorandom Number Generators, 2014).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
