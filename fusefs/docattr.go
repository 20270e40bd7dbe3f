package fusefs

import (
	"ckptfs/index"
)

// docAttr is the owner, mode and mtime of an identity's document.
func (fs *FS) docAttr(i *index.Identity) index.Attr { return i.DocumentAttr() }

func (fs *FS) setDocAttr(i *index.Identity, a index.Attr) error {
	return fs.idx.SetDocumentAttr(i, a)
}
