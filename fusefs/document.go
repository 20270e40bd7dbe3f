package fusefs

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"

	"ckptfs/index"
)

const documentName = "identity.json"

// An identity document on its way lies in the RAM tier, under identity.json or
// under one scratch name, which begins with a dot and is to be renamed (rsync
// does that). The scratch name is in a file beside it.

func (fs *FS) docPath(id index.ObjectID) string {
	return filepath.Join(fs.cfg.RAMDir, "i-"+strconv.FormatUint(uint64(id), 16))
}

func (fs *FS) docNamePath(id index.ObjectID) string { return fs.docPath(id) + ".name" }

// pendingDocument is the name under which an identity's document is being
// written; "" if it is not.
func (fs *FS) pendingDocument(i *index.Identity) string {
	if i.Document() != nil {
		return ""
	}
	if _, err := os.Lstat(fs.docPath(i.ID)); err != nil {
		return ""
	}
	name, err := os.ReadFile(fs.docNamePath(i.ID))
	if err != nil {
		return documentName
	}
	return string(name)
}

// hasDocument reports whether the identity shows an identity.json.
func (fs *FS) hasDocument(i *index.Identity) bool {
	return i.Document() != nil || fs.pendingDocument(i) == documentName
}

// makeDocument begins an identity.json, or a scratch file for it, in an identity
// made with mkdir.
func (fs *FS) makeDocument(dir nodeID, name string) (*os.File, nodeID, error) {
	i, err := fs.identity(dir)
	if err != nil {
		return nil, 0, err
	}
	scratch := strings.HasPrefix(name, ".")
	switch {
	case !scratch && name != documentName:
		return nil, 0, syscall.EPERM
	case i.Document() != nil && scratch:
		return nil, 0, syscall.EPERM // it is written once
	case i.Document() != nil || fs.pendingDocument(i) != "":
		return nil, 0, syscall.EEXIST
	}
	// Before the file: what is there of an earlier one was left by a daemon that was
	// killed.
	if scratch {
		err = os.WriteFile(fs.docNamePath(i.ID), []byte(name), 0o600)
	} else if err = os.Remove(fs.docNamePath(i.ID)); errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	if err != nil {
		return nil, 0, err
	}
	f, err := os.OpenFile(fs.docPath(i.ID), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	return f, makeNode(kindDocument, i.ID), err
}

// dropPending removes a document that is being written.
func (fs *FS) dropPending(i *index.Identity) error {
	err := os.Remove(fs.docPath(i.ID))
	if nerr := os.Remove(fs.docNamePath(i.ID)); err == nil && !errors.Is(nerr, os.ErrNotExist) {
		err = nerr
	}
	return err
}

// renameDocument gives a scratch file the name identity.json: it is checked.
func (fs *FS) renameDocument(i *index.Identity, oldName, newName string, op index.Op) error {
	if oldName != fs.pendingDocument(i) {
		return fs.refuseRemoval(makeNode(kindIdentity, i.ID), oldName)
	}
	if newName != documentName {
		return syscall.EPERM
	}
	return fs.acceptDocument(i, op)
}

func (fs *FS) openDocument(in *fuse.InHeader, n nodeID, flags uint32, write bool, out *fuse.OpenOut) error {
	i, err := fs.identity(n)
	if err != nil {
		return err
	}
	if i.Document() == nil {
		return fs.openDirect(in, n, flags, fs.docPath(i.ID), out)
	}
	if write {
		return syscall.EROFS
	}
	h, err := fs.openHandle(in, n, flags, 0)
	if err != nil {
		return err
	}
	out.Fh, out.OpenFlags = h.number(), fuse.FOPEN_KEEP_CACHE|fuse.FOPEN_NOFLUSH
	return nil
}

// acceptDocument checks a written identity.json: its digest must be the
// directory's name.
func (fs *FS) acceptDocument(i *index.Identity, op index.Op) error {
	if i.Document() != nil {
		return nil
	}
	raw, err := os.ReadFile(fs.docPath(i.ID))
	if err != nil {
		return err
	}
	doc, err := index.ParseDocument(raw)
	if err != nil {
		fs.log.Info("refused an identity document", "identity", i.Name, "reason", err)
		return err
	}
	if doc.Name() != i.Name {
		fs.log.Info("refused an identity document", "identity", i.Name, "reason", "its digest is "+doc.Name())
		return syscall.EINVAL
	}
	if err := fs.idx.SetDocument(i, doc, op); err != nil {
		return err
	}
	return fs.dropPending(i)
}
