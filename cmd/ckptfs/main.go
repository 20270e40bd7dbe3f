// Command ckptfs mounts and serves a filesystem of LLM inference checkpoints, and talks to one from a shell.
package main

import (
	"context"
	"os"
)

func main() {
	io := streams{in: os.Stdin, out: os.Stdout, err: os.Stderr}
	os.Exit(run(context.Background(), commands(), os.Args[1:], io))
}
