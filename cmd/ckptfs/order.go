package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode"

	"golang.org/x/sys/unix"

	"ckptfs/fusefs"
)

// giveOrder has the daemon of a mount do something, by .ckptfs/control. progress is called now and then, and last when
// it is done. The error is the daemon's, with its exit code. A daemon that is replaced meanwhile has forgotten the
// order: it is given again.
func giveOrder(ctx context.Context, mount string, order fusefs.Order, progress func(fusefs.Report)) (fusefs.Report, error) {
	f, err := os.OpenFile(filepath.Join(mount, ".ckptfs", "control"), os.O_RDWR, 0)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fusefs.Report{}, fmt.Errorf("this is for root only; try sudo: %w", err)
	case err != nil:
		return fusefs.Report{}, withCode(exitNotMounted, fmt.Errorf("no ckptfs answers at %s: %w", mount, err))
	}
	defer f.Close()
	line, err := json.Marshal(order)
	if err != nil {
		return fusefs.Report{}, err
	}
	for {
		report, err := converseOrder(ctx, f, append(line, '\n'), progress)
		if errors.Is(err, unix.ESTALE) {
			continue
		}
		if err == nil && report.Error != "" {
			err = withCode(reportCode(report.Code), errors.New(report.Error))
		}
		return report, err
	}
}

// converseOrder gives the order once and reads its reports.
func converseOrder(ctx context.Context, f io.ReadWriter, order []byte, progress func(fusefs.Report)) (r fusefs.Report, err error) {
	if _, err := f.Write(order); err != nil {
		return r, err
	}
	for lines := bufio.NewReader(f); !r.Done; {
		text, err := lines.ReadBytes('\n')
		if err != nil {
			return r, err
		}
		r = fusefs.Report{}
		if err := json.Unmarshal(text, &r); err != nil {
			return r, fmt.Errorf("a report of the daemon: %w", err)
		}
		progress(r)
		if ctx.Err() != nil {
			return r, errors.New("given up; the daemon stops where it is, and what is done stays done")
		}
	}
	return r, nil
}

// writeReport prints what an order has come to, if the daemon has told, as JSON or in words. It returns the order's own
// error, and that of the encoding.
func writeReport[R any](w io.Writer, report *R, asJSON bool, inWords func(io.Writer, R), orderErr error) error {
	switch {
	case report == nil:
	case asJSON:
		return errors.Join(json.NewEncoder(w).Encode(report), orderErr)
	default:
		inWords(w, *report)
	}
	return orderErr
}

func reportCode(code string) int {
	switch code {
	case fusefs.CodeBusy:
		return exitBusy
	case fusefs.CodeNotFound:
		return exitMiss
	case fusefs.CodeInvalid:
		return exitUsage
	}
	return exitFailure
}

// writeHolders prints who holds something, one line each.
func writeHolders(w io.Writer, list fusefs.LeaseList) {
	for _, l := range list.Leases {
		who := "a process that has ended or is not seen from here"
		if l.Command != "" {
			who = l.Command
		}
		fmt.Fprintf(w, "    held by %s (pid %d) for %s: %s %s\n", printable(who), l.PID, uptime(float64(l.AgeSeconds)), l.Kind, printable(l.Path))
	}
	if list.LeftOut > 0 {
		fmt.Fprintf(w, "    and by %d more\n", list.LeftOut)
	}
}

// count is a number with what it counts: "1 page", "2 pages".
func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// printable is text for a terminal: names are their owners', and must not do anything there.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}
