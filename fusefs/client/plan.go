package client

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Plan is what the filesystem says about a staging: the name to publish it
// under and the pages that nobody has yet.
type Plan struct {
	Generation string `json:"generation"`
	// Published is true if this very content is published already.
	Published bool   `json:"published"`
	Missing   []Page `json:"missing"`
}

// MissingOf returns the missing pages of one rank.
func (p Plan) MissingOf(rank int) []Page {
	var pages []Page
	for _, page := range p.Missing {
		if RankOf(page.Path) == rank {
			pages = append(pages, page)
		}
	}
	return pages
}

// Plan reads the plan as it is now. After publication, by whichever rank, it
// misses nothing.
func (s *Staging) Plan() (Plan, error) {
	plan, err := s.readPlan()
	if isGone(err) && s.published() {
		return Plan{Generation: s.generation, Published: true}, nil
	}
	if err != nil {
		return plan, s.fail("read the plan of", err)
	}
	return plan, nil
}

func (s *Staging) readPlan() (Plan, error) {
	var plan Plan
	text, err := s.readFile("plan.json")
	if err != nil {
		return plan, err
	}
	if err := json.Unmarshal(text, &plan); err != nil {
		return plan, fmt.Errorf("plan.json: %w", err)
	}
	if plan.Generation == "" {
		return plan, errors.New("plan.json names no generation")
	}
	return plan, nil
}

// isMissing reports whether the plan still lists a page.
func (s *Staging) isMissing(path string) (bool, error) {
	plan, err := s.readPlan()
	if err != nil {
		return false, err
	}
	for _, page := range plan.Missing {
		if page.Path == path {
			return true, nil
		}
	}
	return false, nil
}
