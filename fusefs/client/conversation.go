package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

// staleTries bounds how often a request is written again. Each repetition means
// that the daemon was replaced within the few milliseconds of a conversation.
const staleTries = 10

// converse writes a request to a transaction file and reads the reply, one
// line. ESTALE says that the daemon was replaced and forgot a half-received
// request: it is written again.
func converse(ctx context.Context, file io.ReadWriter, request []byte) ([]byte, error) {
	wait := newBackoff()
	for try := 1; ; try++ {
		reply, err := converseOnce(file, request)
		if err == nil || !isErrno(err, unix.ESTALE) || try == staleTries {
			return reply, err
		}
		if ctxErr := wait.wait(ctx); ctxErr != nil {
			return nil, fmt.Errorf("%w (%w)", err, ctxErr)
		}
	}
}

func converseOnce(file io.ReadWriter, request []byte) ([]byte, error) {
	for sent := 0; sent < len(request); {
		n, err := file.Write(request[sent:])
		sent += n
		if err != nil && !(errors.Is(err, io.ErrShortWrite) && n > 0) {
			return nil, fmt.Errorf("write the request: %w", err)
		}
	}
	return readLine(file)
}

// readLine reads up to a newline or the end, and drops the newline.
func readLine(file io.Reader) ([]byte, error) {
	var line []byte
	chunk := make([]byte, 4096)
	for {
		n, err := file.Read(chunk)
		line = append(line, chunk[:n]...)
		if before, _, found := bytes.Cut(line, []byte("\n")); found {
			return before, nil
		}
		switch {
		case err == io.EOF && len(line) > 0:
			return line, nil
		case err == io.EOF:
			return nil, fmt.Errorf("read the reply: %w", io.ErrUnexpectedEOF)
		case err != nil:
			return nil, fmt.Errorf("read the reply: %w", err)
		}
	}
}
