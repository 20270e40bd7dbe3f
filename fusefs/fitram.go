package fusefs

import (
	"ckptfs/pages"
)

// A RAM tier that has become smaller (--l1-size) keeps the size of its tmpfs until
// enough pages have gone to disk: the kernel makes no tmpfs smaller than what is
// in it.

// announceFit says what has to go before anything goes.
func (fs *FS) announceFit() {
	held, _ := fs.budget.Usage()
	if over := held - fs.budget.Limit(); over > 0 {
		fs.log.Warn("the RAM tier holds more than --l1-size; pages go to disk, the coldest first",
			"bytes", held, "bound", fs.budget.Limit(), "too_many_bytes", over, "pages", fs.tiers.Resident())
	}
}

// fitRAM makes the tmpfs smaller when its pages fit.
func (fs *FS) fitRAM() {
	want := pages.RAMBytes(fs.budget.Limit())
	used, total, err := fs.ram.Usage()
	if err != nil || fs.ram.Kind() != pages.RAMTmpfs || total <= want || used > want {
		return
	}
	if err := pages.ResizeRAM(fs.ram.Dir(), want); err != nil {
		fs.log.Warn("the RAM tier's tmpfs keeps its size", "bytes", total, "want", want, "error", err)
		return
	}
	fs.log.Info("the RAM tier's tmpfs has its new size", "bytes", want, "before", total)
}
