package main

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"ckptfs/fusefs/client"
)

// putSource is a directory with a generation to be stored.
type putSource struct {
	dir      string
	document []byte // the manifest as it is to be written
	manifest client.Manifest
	tokens   []uint32 // nil: the manifest was published before
}

// openPutSource reads manifest and tokens. A request that is not empty replaces the manifest's own.
func openPutSource(dir, request string) (putSource, error) {
	source := putSource{dir: dir}
	document, err := os.ReadFile(filepath.Join(dir, "manifest.json"))
	if err != nil {
		return source, fmt.Errorf("%s holds no generation: %w", dir, err)
	}
	if request != "" {
		if document, err = withRequest(document, request); err != nil {
			return source, fmt.Errorf("%s: %w", filepath.Join(dir, "manifest.json"), err)
		}
	}
	if source.manifest, err = client.ParseManifest(document); err != nil {
		return source, fmt.Errorf("%s: %w", dir, err)
	}
	source.document = document
	source.tokens, err = readTokensFile(filepath.Join(dir, "tokens"))
	if errors.Is(err, fs.ErrNotExist) && source.manifest.Generation != "" {
		return source, nil
	}
	return source, err
}

// withRequest replaces the request and keeps every other field as it is.
func withRequest(document []byte, request string) ([]byte, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(document, &fields); err != nil {
		return nil, err
	}
	if fields == nil {
		return nil, errors.New("the manifest must be a JSON object, not null")
	}
	text, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	fields["request"] = text
	return json.Marshal(fields)
}

// stagingName is the same in every process that puts the same contents, and for the next try.
func (s putSource) stagingName() string {
	sum := sha256.New()
	sum.Write(s.document)
	sum.Write(client.EncodeTokens(s.tokens))
	return fmt.Sprintf("put-%x", sum.Sum(nil)[:8])
}

// page opens the file of a page and checks its size.
func (s putSource) page(page client.Page) (*os.File, error) {
	path := filepath.Join(s.dir, page.Path)
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && info.Size() != page.Bytes {
		err = fmt.Errorf("%s has %d bytes, and the manifest wants %d", path, info.Size(), page.Bytes)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// pagesOf lists the pages of one rank, or with allRanks those of all worldSize ranks.
func pagesOf(manifest client.Manifest, rank, worldSize int) []client.Page {
	if rank != allRanks {
		return slices.Collect(manifest.Pages(rank))
	}
	var pages []client.Page
	for r := range worldSize {
		pages = slices.AppendSeq(pages, manifest.Pages(r))
	}
	return pages
}

// checkRank refuses a rank that the generation does not have. worldSize is 0 if it is not known.
func checkRank(rank, worldSize int) error {
	if rank < allRanks || worldSize > 0 && rank >= worldSize {
		return withCode(exitUsage, fmt.Errorf("--rank %d: the ranks are 0 to %d, and %d is all of them", rank, worldSize-1, allRanks))
	}
	return nil
}

// worldSize reads the world size from an identity's document; 0 if it can't.
func worldSize(identityDir string) int {
	var identity struct {
		Parallel struct {
			WorldSize int `json:"world_size"`
		} `json:"parallel"`
	}
	document, err := os.ReadFile(filepath.Join(identityDir, "identity.json"))
	if err != nil || json.Unmarshal(document, &identity) != nil {
		return 0
	}
	return identity.Parallel.WorldSize
}
