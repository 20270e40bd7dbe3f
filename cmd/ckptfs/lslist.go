package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ckptfs/fusefs/client"
)

// listedGeneration is a generation as ls shows it. What is not known is left empty.
type listedGeneration struct {
	Model      string    `json:"model"`
	Identity   string    `json:"identity"`
	Generation string    `json:"generation"`
	Tokens     int       `json:"tokens"`
	Kind       string    `json:"kind"`
	State      string    `json:"state,omitempty"`
	Tier       string    `json:"tier,omitempty"`
	Bytes      int64     `json:"bytes"`
	Published  time.Time `json:"published"`
	Pinned     bool      `json:"pinned,omitempty"`
	Leases     int       `json:"leases,omitempty"`
}

// listGenerations lists what is below a path, the oldest of an identity first. The error may come with a list: then it
// tells what could not be read.
func listGenerations(path string) ([]listedGeneration, error) {
	mount, below, err := splitMountPath(path)
	if err != nil {
		return nil, err
	}
	dirs, problem := expand(mount, below)
	list := []listedGeneration{}
	for _, dir := range dirs {
		if g, ok := describeGeneration(mount, dir); ok {
			list = append(list, g)
		}
	}
	if len(below) == 3 && len(list) == 0 {
		return nil, fmt.Errorf("%s is no generation", path)
	}
	slices.SortStableFunc(list, func(a, b listedGeneration) int {
		if a.Model != b.Model || a.Identity != b.Identity {
			return 0 // as listed
		}
		return a.Published.Compare(b.Published)
	})
	return list, problem
}

// splitMountPath finds the mount that a path is in, and at most three names below it: model, identity, generation.
func splitMountPath(path string) (mount string, below []string, err error) {
	if path, err = filepath.Abs(path); err != nil {
		return "", nil, err
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return "", nil, err
	}
	for dir := path; ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(filepath.Join(dir, ".ckptfs")); err == nil || errors.Is(err, unix.EACCES) && dir == path {
			rel, err := filepath.Rel(dir, path)
			if err != nil || rel == "." {
				return dir, nil, err
			}
			below = strings.Split(rel, "/")
			return dir, below[:min(len(below), 3)], nil
		}
		if dir == "/" {
			return "", nil, withCode(exitNotMounted, fmt.Errorf("%s is not in a ckptfs mount", path))
		}
	}
}

// expand gives the generations' paths relative to the mount.
func expand(mount string, below []string) (paths []string, problem error) {
	paths = []string{strings.Join(below, "/")}
	for range 3 - len(below) {
		var next []string
		for _, p := range paths {
			names, err := subdirectories(filepath.Join(mount, p))
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				problem = errors.Join(problem, err)
			}
			for _, name := range names {
				next = append(next, filepath.Join(p, name))
			}
		}
		paths = next
	}
	return paths, problem
}

// describeGeneration reads what is known of a generation. False if it is gone, or none.
func describeGeneration(mount, path string) (listedGeneration, bool) {
	dir := filepath.Join(mount, path)
	names := strings.Split(path, "/")
	g := listedGeneration{Model: names[0], Identity: names[1], Generation: names[2]}
	tokens, rest, _ := strings.Cut(g.Generation, "-")
	g.Kind, _, _ = strings.Cut(rest, "-")
	var err error
	if g.Tokens, err = strconv.Atoi(tokens); err != nil {
		return g, false
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return g, false
	}
	g.State, g.Tier = attribute(dir, "state"), attribute(dir, "tier")
	g.Pinned = attribute(dir, "pin") != ""
	g.Leases, _ = strconv.Atoi(attribute(dir, "leases"))
	if g.Published, err = time.Parse(time.RFC3339Nano, attribute(dir, "published")); err != nil {
		g.Published = info.ModTime()
	}
	if g.Bytes, err = strconv.ParseInt(attribute(dir, "bytes"), 10, 64); err != nil {
		g.Bytes = manifestBytes(dir)
	}
	return g, true
}

// attribute reads an extended attribute of ckptfs, "" if there is none.
func attribute(path, name string) string {
	value := make([]byte, 512)
	n, err := unix.Lgetxattr(path, "user.ckptfs."+name, value)
	if err != nil {
		return ""
	}
	return string(value[:n])
}

// manifestBytes is the size of all pages that a manifest names: of a backup, or by a daemon without attributes.
func manifestBytes(dir string) int64 {
	raw, err := os.ReadFile(filepath.Join(dir, "manifest.json"))
	if err != nil {
		return 0
	}
	m, err := client.ParseManifest(raw)
	if err != nil {
		return 0
	}
	return totalBytes(pagesOf(m, allRanks, m.WorldSize))
}
