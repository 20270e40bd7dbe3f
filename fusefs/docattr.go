package fusefs

import (
	"ckptfs/index"
)

// docAttr is the owner, mode and mtime of an identity's document.
func (fs *FS) docAttr(i *index.Identity) index.Attr {
	a := i.Attr()
	a.Mode, a.Mtime = 0o444, 0
	return a
}

func (fs *FS) setDocAttr(i *index.Identity, a index.Attr) error {
	return nil
}
