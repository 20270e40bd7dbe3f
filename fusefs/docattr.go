package fusefs

import (
	"ckptfs/index"
)

// docAttr is the owner, mode and mtime of an identity's document.
func (fs *FS) docAttr(i *index.Identity) index.Attr { return i.DocumentAttr() }
