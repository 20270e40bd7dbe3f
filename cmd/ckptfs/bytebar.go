package main

import (
	"io"
	"time"

	"github.com/schollz/progressbar/v3"
)

// byteBar is a progress bar over bytes. The zero value draws nothing, as does one whose writer is no terminal.
type byteBar struct{ bar *progressbar.ProgressBar }

func newByteBar(w io.Writer, label string, totalBytes int64) byteBar {
	if !isTerminal(w) {
		return byteBar{}
	}
	return byteBar{progressbar.NewOptions64(totalBytes,
		progressbar.OptionSetWriter(w),
		progressbar.OptionSetDescription(label),
		progressbar.OptionShowBytes(true),
		progressbar.OptionSetWidth(30),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionClearOnFinish(),
	)}
}

// add notes that n bytes more are done; several goroutines may call it.
func (b byteBar) add(n int64) {
	if b.bar != nil {
		_ = b.bar.Add64(n)
	}
}

// end leaves the line to what is printed next.
func (b byteBar) end() {
	if b.bar != nil {
		_ = b.bar.Exit()
	}
}
