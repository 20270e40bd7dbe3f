package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"ckptfs/index"
)

const identityAbout = `
Prints the directory name of an identity document: the first 40 hex digits of the SHA-256 of its canonical form. No
mount is needed. FILE is the document, '-' is stdin. A document that a mount would refuse is refused here too, in words.`

// maxIdentityBytes bounds what is read; a document is a few hundred bytes.
const maxIdentityBytes = 16 << 20

func runIdentity(_ context.Context, args []string, std streams) error {
	fs := newFlags(std, "identity [flags] FILE", identityAbout)
	canonical := fs.Bool("canonical", false, "print the canonical form of the document instead of its name")
	if err := parseFlags(fs, args, 1, 1); err != nil {
		return err
	}
	raw, err := readDocument(fs.Arg(0), std.in)
	if err != nil {
		return err
	}
	doc, err := index.ParseDocument(raw)
	if err != nil {
		return withCode(exitRefused, fmt.Errorf("%s: %w", fs.Arg(0), err))
	}
	line := doc.Name()
	if *canonical {
		line = string(doc.Doc)
	}
	_, err = fmt.Fprintln(std.out, line)
	return err
}

// readDocument reads the file, or stdin for "-".
func readDocument(path string, stdin io.Reader) ([]byte, error) {
	in := stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	raw, err := io.ReadAll(io.LimitReader(in, maxIdentityBytes+1))
	if err != nil {
		return nil, err
	}
	if len(raw) > maxIdentityBytes {
		return nil, withCode(exitRefused, fmt.Errorf("%s has more than %d bytes", path, maxIdentityBytes))
	}
	return raw, nil
}
