package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"ckptfs/fusefs/client"
	"ckptfs/index"
)

// backup is what a backup holds, as far as names tell.
type backup struct {
	identities  []*backupIdentity
	generations []*backupGeneration
	refused     []refusal
}

// backupIdentity is an identity directory of a backup.
type backupIdentity struct {
	model, name string
	dir         string
	document    *index.Document
	raw         []byte
	failed      atomic.Bool // it could not be made in the mount: its generations are not tried
}

func (i *backupIdentity) refused() bool { return i.failed.Load() }

func (i *backupIdentity) path() string { return i.model + "/" + i.name }

// backupGeneration is a generation directory of a backup.
type backupGeneration struct {
	identity *backupIdentity
	name     string
	dir      string
	bytes    int64 // of its pages; known when it has been checked
	mtime    time.Time
}

func (g *backupGeneration) path() string { return g.identity.path() + "/" + g.name }

// openBackup lists a backup. Names that begin with a dot are none of ours: rsync's own, or a trash.
func openBackup(dir string, flags restoreFlags) (*backup, error) {
	models, err := subdirectories(dir)
	if err != nil {
		return nil, err
	}
	b := &backup{}
	found := false
	for _, model := range models {
		if flags.model != "" && model != client.ModelDir(flags.model) {
			continue
		}
		identities, err := subdirectories(filepath.Join(dir, model))
		if err != nil {
			return nil, err
		}
		for _, name := range identities {
			if strings.HasPrefix(name, flags.identity) {
				found = true
				b.addIdentity(&backupIdentity{model: model, name: name, dir: filepath.Join(dir, model, name)})
			}
		}
	}
	if !found {
		what := "no <model>/<identity> directory"
		if flags.model != "" || flags.identity != "" {
			what += " that --model and --identity mean"
		}
		return nil, fmt.Errorf("%s has %s; give a directory that is a copy of a whole mount", dir, what)
	}
	return b, nil
}

// addIdentity reads the document and lists the generations.
func (b *backup) addIdentity(i *backupIdentity) {
	refuse := func(err error) { b.refused = append(b.refused, refusal{i.path(), err}) }
	if len(i.name) != 40 || strings.Trim(i.name, "0123456789abcdef") != "" {
		refuse(errors.New("it is no identity: the name is not 40 hex digits"))
		return
	}
	var err error
	if i.raw, err = readRegular(filepath.Join(i.dir, "identity.json"), maxDocumentBytes); err != nil {
		refuse(err)
		return
	}
	if i.document, err = index.ParseDocument(i.raw); err != nil {
		refuse(fmt.Errorf("identity.json: %w", err))
		return
	}
	if i.document.Name() != i.name {
		refuse(fmt.Errorf("identity.json is the document of %s, not of this directory: it was changed, or the directory was renamed", i.document.Name()))
		return
	}
	names, err := subdirectories(i.dir)
	if err != nil {
		refuse(err)
		return
	}
	b.identities = append(b.identities, i)
	for _, name := range names {
		b.generations = append(b.generations, &backupGeneration{identity: i, name: name, dir: filepath.Join(i.dir, name)})
	}
}

// subdirectories lists the directories in a directory, sorted, without dot names.
func subdirectories(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// refusal is a part of the backup that was not restored.
type refusal struct {
	path string
	err  error
}

// refusals collects them from several goroutines.
type refusals struct {
	mu   sync.Mutex
	list []refusal
}

func (r *refusals) add(path string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, refusal{path, err})
}

// lines gives one line for each, sorted. The names are those of the backup, whatever they hold.
func (r *refusals) lines() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var lines []string
	for _, f := range r.list {
		lines = append(lines, printable(f.path)+": "+printable(strings.ReplaceAll(f.err.Error(), "\n", "; ")))
	}
	slices.Sort(lines)
	return lines
}
