# The two that matter: make demo, make test. bin/ckptfs is static and needs nothing.

GO       ?= go
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null)
# The race detector needs a C compiler; the programs do not.
RACE     ?= $(if $(shell command -v $(shell $(GO) env CC) 2>/dev/null),-race)
FUZZTIME ?= 10s
UNIT      = $$($(GO) list ./... | grep -v /e2e)

.PHONY: build demo test unit e2e bench workload lint fuzz ci clean

build:
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o bin/ckptfs ./cmd/ckptfs

# Mounts in a temporary place, lets rank processes store, find and restore real pages, compares every byte.
demo: build
	CGO_ENABLED=0 $(GO) build -o bin/demo ./tools/demo
	bin/demo -ckptfs bin/ckptfs

test: unit e2e

unit:
	$(GO) test $(RACE) -timeout 15m $(UNIT)

# The built binary on real mounts. Where mounting is impossible the tests skip and say why;
# with CKPTFS_REQUIRE_FUSE=1 they fail.
e2e:
	$(GO) test -timeout 25m ./e2e/...

# The quick form of the measurements against the targets, about two minutes; tools/bench/RESULTS.md says how to have
# the whole table.
bench: build
	CGO_ENABLED=0 $(GO) build -o bin/bench ./tools/bench
	bin/bench --ckptfs bin/ckptfs --quick

# Short rows of the retention workload through a mount, a minute; bin/workload without flags plays the table of
# evict/RETENTION.md against its targets, about a minute a row.
workload: build
	CGO_ENABLED=0 $(GO) build -o bin/workload ./tools/workload
	bin/workload --workload agent,side,fork,chat+side --l1 32 --turns 7 --policy recency,adaptive

lint:
	$(GO) vet ./...
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "not gofmt-ed:" $$unformatted; exit 1; fi

# Every fuzz target for FUZZTIME.
fuzz:
	@set -e; for dir in $$(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n 1 dirname | sort -u); do \
	  for target in $$($(GO) test -list '^Fuzz' $$dir | grep '^Fuzz'); do \
	    echo "fuzz $$dir $$target"; \
	    $(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) $$dir; \
	  done; \
	done

ci: lint build test fuzz demo

clean:
	rm -rf bin
