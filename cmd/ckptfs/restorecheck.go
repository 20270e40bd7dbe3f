package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"ckptfs/fusefs/client"
	"ckptfs/index"
	"ckptfs/pages"
)

const (
	maxDocumentBytes = 16 << 20
	// maxPublishedBytes bounds a published manifest, which is larger than what was written: it has digests.
	maxPublishedBytes = 1 << 30
)

// checked is a generation of a backup that holds.
type checked struct {
	manifest []byte
	pages    []client.Page
	keys     map[string]pages.Key // content keys by page path
}

// check looks at all generations and returns those that hold and are not in the mount yet.
func (r *restore) check(ctx context.Context, b *backup) ([]*backupGeneration, error) {
	there := r.published(b)
	var mu sync.Mutex
	var todo []*backupGeneration
	err := r.each(ctx, b.generations, func(_ context.Context, g *backupGeneration) error {
		if there[g.path()] {
			r.done.present.Add(1)
			return nil
		}
		c, err := g.check()
		if err != nil {
			return err
		}
		for _, page := range c.pages {
			g.bytes += page.Bytes
		}
		info, err := os.Lstat(g.dir)
		if err != nil {
			return err
		}
		g.mtime = info.ModTime()
		mu.Lock()
		defer mu.Unlock()
		todo = append(todo, g)
		return nil
	})
	return todo, err
}

// published lists what is published of the identities of a backup. A listing shows that and nothing else, while the name
// of a generation whose deletion was not carried through still leads to what is left of it. An identity that can't be
// listed is refused.
func (r *restore) published(b *backup) map[string]bool {
	there := map[string]bool{}
	for _, i := range b.identities {
		names, err := subdirectories(r.identityDir(i))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			i.failed.Store(true)
			r.refused.add(i.path(), err)
		}
		for _, name := range names {
			there[i.path()+"/"+name] = true
		}
	}
	return there
}

// check verifies a generation without looking at the mount: the manifest against identity, name and digest, and
// that each page is there with its size.
func (g *backupGeneration) check() (*checked, error) {
	raw, err := readRegular(filepath.Join(g.dir, "manifest.json"), maxPublishedBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New("it is incomplete: manifest.json is missing")
	}
	if err != nil {
		return nil, err
	}
	m, err := index.ParseManifest(raw)
	if err != nil {
		return nil, fmt.Errorf("manifest.json: %w", err)
	}
	doc := g.identity.document
	d, err := m.DeriveRestored(doc.Digest, doc.WorldSize)
	if err != nil {
		return nil, fmt.Errorf("manifest.json: %w", err)
	}
	if d.Name != g.name {
		return nil, fmt.Errorf("manifest.json is that of %s: it was changed, or the directory was renamed", d.Name)
	}
	c := &checked{manifest: raw, keys: make(map[string]pages.Key, len(d.Keys))}
	layout := m.Layout(doc.WorldSize)
	for slot, key := range d.Keys {
		rank, group, i := layout.At(slot)
		l := &layout.Groups[group]
		page := client.Page{Path: client.PagePath(rank, l.Name, int(l.Positions[i])), Bytes: l.PageBytes}
		c.pages = append(c.pages, page)
		c.keys[page.Path] = key
	}
	return c, g.checkPages(c.pages)
}

// checkPages counts what is missing or has another size, and names the first.
func (g *backupGeneration) checkPages(list []client.Page) error {
	bad, first := 0, ""
	for _, page := range list {
		info, err := os.Lstat(filepath.Join(g.dir, page.Path))
		problem := ""
		switch {
		case errors.Is(err, fs.ErrNotExist):
			problem = "is missing"
		case err != nil:
			return err
		case !info.Mode().IsRegular():
			problem = "is no file"
		case info.Size() != page.Bytes:
			problem = fmt.Sprintf("has %d bytes, and the manifest says %d", info.Size(), page.Bytes)
		default:
			continue
		}
		if bad++; bad == 1 {
			first = page.Path + " " + problem
		}
	}
	switch {
	case bad == 1:
		return fmt.Errorf("it is incomplete: %s", first)
	case bad > 1:
		return fmt.Errorf("it is incomplete: %d of %d pages are missing or have a wrong size; %s", bad, len(list), first)
	}
	return nil
}

// openRegular opens a file of the backup, and nothing else: a symlink there may point anywhere.
func openRegular(path string) (*os.File, fs.FileInfo, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ELOOP) {
		return nil, nil, fmt.Errorf("%s is no file", path)
	}
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no file", path)
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// readRegular reads a whole file of at most maxBytes.
func readRegular(path string, maxBytes int64) ([]byte, error) {
	f, info, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info.Size() > maxBytes {
		return nil, fmt.Errorf("%s is larger than %s", path, sizeValue(maxBytes).people())
	}
	return io.ReadAll(f)
}
