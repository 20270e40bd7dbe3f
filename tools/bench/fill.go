package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"ckptfs/fusefs/client"
	"ckptfs/index"
	"ckptfs/pages"
)

// storeL1 is the RAM tier of a store: a million pages of one block each.
const (
	storeL1      = "6GiB"
	storeL1Bytes = 6 << 30
)

// fill makes the state of a store with n generations, as a daemon that ended
// without a word would have left it: the index, and the pages on the RAM tier's
// tmpfs. It uses the packages that the daemon uses, not the daemon, to be done in
// minutes instead of an hour.
func (m *mounted) fill(n int) error {
	ram := filepath.Join(m.state, "ram")
	if err := os.MkdirAll(ram, 0o700); err != nil {
		return err
	}
	if err := pages.MountRAM(ram, storeL1Bytes+1<<30, true); err != nil {
		return errSkip{fmt.Sprintf("a store is filled on a tmpfs of its own: %v", err)}
	}
	tier, err := pages.OpenRAM(ram)
	if err != nil {
		return err
	}
	defer tier.Close()
	x, err := index.Open(filepath.Join(m.state, "index.db"), index.Options{})
	if err != nil {
		return err
	}
	f := filler{x: x, tier: tier, content: make([]byte, tinyPage)}
	err = f.begin()
	began := time.Now()
	for k, t := range turns(n) {
		if err == nil {
			err = m.b.ctx.Err()
		}
		if err != nil {
			break
		}
		err = f.add(t)
		if (k+1)%10_000 == 0 {
			m.b.note("  %d generations, %d pages, %.0f s", k+1, f.pages, time.Since(began).Seconds())
		}
	}
	return errors.Join(err, x.Close())
}

// filler publishes generations into an index.
type filler struct {
	x        *index.Index
	tier     *pages.RAM
	identity *index.Identity
	content  []byte
	pages    int

	conversation int
	tokens       []byte // of the conversation, encoded
}

func (f *filler) begin() error {
	f.conversation = -1
	now := index.Attr{Mode: 0o755, Mtime: time.Now().UnixNano()}
	model, err := f.x.CreateModel(client.ModelDir(modelName), now, 0)
	if err != nil {
		return err
	}
	doc, err := index.ParseDocument(identityDocument(worldSize, tinyPage))
	if err != nil {
		return err
	}
	f.identity, err = f.x.CreateIdentity(model, doc.Name(), doc, now, 0)
	return err
}

func (f *filler) add(t turn) error {
	if f.conversation != t.conversation {
		f.conversation = t.conversation
		f.tokens = client.EncodeTokens(tokens(conversationSeed(t.conversation), t.shape.tokensAt(t.shape.turns)))
	}
	m, err := index.ParseManifest(mustJSON(t.manifest()))
	if err != nil {
		return err
	}
	doc := f.identity.Document()
	d, err := m.Derive(doc.Digest, doc.WorldSize, f.tokens[:4*m.NumTokens])
	if err != nil {
		return err
	}
	published, err := m.PublishedJSON(doc.Digest, doc.WorldSize, d)
	if err != nil {
		return err
	}
	d.InModel(f.identity.Model.Name)
	now := time.Now().UnixNano()
	p := &index.Publication{
		ID: f.x.NextID(), Identity: f.identity, Manifest: m, Derived: d, Published: now,
		Contents: &index.Contents{Manifest: published, Layout: m.Layout(doc.WorldSize)},
		Attr:     index.Attr{Mode: 0o755, Mtime: now},
	}
	if err := f.addPages(p, now); err != nil {
		return err
	}
	_, _, err = f.x.Publish(p)
	return err
}

// addPages links the pages that are there and makes the others.
func (f *filler) addPages(p *index.Publication, now int64) error {
	there, err := f.x.PagesByKey(p.Derived.Keys)
	if err != nil {
		return err
	}
	for slot, key := range p.Derived.Keys {
		if there[slot] != nil {
			p.Contents.Pages = append(p.Contents.Pages, there[slot].ID)
			continue
		}
		id := pages.ID(f.x.NextID())
		file, err := f.tier.Create(id, tinyPage)
		if err != nil {
			return err
		}
		_, err = file.Write(f.content)
		if err = errors.Join(err, file.Close()); err != nil {
			return err
		}
		f.pages++
		p.Contents.Pages = append(p.Contents.Pages, id)
		p.NewPages = append(p.NewPages, index.NewPage{ID: id, Key: key, Bytes: tinyPage, Attr: index.Attr{Mode: 0o444, Mtime: now}})
	}
	return nil
}

// filled gives a running mount of a store with so many generations, filled at
// the first call, when it has come to rest.
func (b *bench) filled(n int) (*mounted, error) {
	name := fmt.Sprintf("store-%d", n)
	for _, m := range b.mounts {
		if m.base == filepath.Join(b.base, name) {
			return m, nil
		}
	}
	b.note("  filling a store with %d generations …", n)
	m, err := b.newMount(name, storeL1, "--keep-ram")
	if err != nil {
		return nil, err
	}
	if err := m.fill(n); err != nil {
		return nil, err
	}
	if err := m.start(); err != nil {
		return nil, err
	}
	return m, m.awaitRest()
}
