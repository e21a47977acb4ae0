# Bare "make" prints what there is.

GO      ?= go
# A checkout that belongs to somebody else is still this checkout.
GIT     := git -c safe.directory=$(CURDIR)
VERSION ?= $(shell $(GIT) describe --tags --always --dirty 2>/dev/null || echo devel)
LDFLAGS := -X ringfence/internal/cli.version=$(VERSION)
GOLANGCI := $(GO) tool -modfile=tools/go.mod golangci-lint
PLATFORMS := linux/amd64 linux/arm64 darwin/arm64 darwin/amd64 windows/amd64 windows/arm64 freebsd/amd64

# T is how long each fuzzer runs.
T ?= 60s

.DEFAULT_GOAL := help
.PHONY: help build try test race lint fmt tidy gen tree startup check elsewhere cross e2e fuzz bench boxes crash soak agents cover golden deps

help: ## print this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## the one binary, bin/ringfence, without cgo
	GO='$(GO)' scripts/build.sh bin/ringfence '$(LDFLAGS)'

try: build ## build, and run the demonstration
	bin/ringfence demo

test: ## all tests; installs what they need, outside the tree, and starts container engines
	CGO_ENABLED=0 scripts/need.sh scripts/engines.sh $(GO) test -timeout 20m ./...

race: ## the same with the race detector (needs a C compiler)
	CGO_ENABLED=1 scripts/need.sh scripts/engines.sh $(GO) test -race -timeout 40m ./...

e2e: ## the stories with the real binary
	CGO_ENABLED=0 scripts/need.sh scripts/engines.sh $(GO) test -count=1 -timeout 20m ./test/...

fmt: ## format the tree
	$(GOLANGCI) fmt ./...

tidy: ## fail if go.mod and go.sum are not what the code needs
	$(GO) mod tidy -diff
	$(GO) -C tools mod tidy -diff

lint: ## lints, our own analyzers, scripts; prints what is too long
	$(GOLANGCI) run ./...
	$(GO) build -C tools -o ../bin/vet ./vet
	bin/vet ./...
	$(GO) -C tools test ./...
	@if command -v shellcheck >/dev/null; then shellcheck scripts/*.sh .ci/run; \
	elif [ "$(CI)" = true ]; then echo "lint: shellcheck is missing" >&2; exit 1; \
	else echo "lint: shellcheck is not installed, so the scripts were NOT checked" >&2; fi
	@$(GO) test -count=1 -v -run '^TestAdvice$$' . | sed -n 's/^ *tree_test.go:[0-9]*: /advice: /p'

gen: build ## the generated documents and cmd/ringfence/deps.txt
	rm -rf docs/reference/cli
	bin/ringfence generate docs/reference >/dev/null
	$(GO) -C tools run ./house ..

deps: ## the packages in the binary, per platform (a part of gen)
	$(GO) -C tools run ./house ..

tree: ## the shape of the tree
	$(GO) test -count=1 .

startup: ## third-party initialisation on the way to --version, at most 3 ms
	$(GO) test -count=1 -v ./test/startup

cover: ## every statement of policy and gate is run by their own tests
	scripts/cover.sh ./internal/policy ./internal/gate

elsewhere: ## vet for two platforms that are not this one
	GOOS=windows CGO_ENABLED=0 $(GO) vet ./...
	GOOS=darwin CGO_ENABLED=0 $(GO) vet ./...

check: fmt tidy lint elsewhere gen tree startup cover ## what must hold before anything else; ends with a clean git status
	@changed=$$($(GIT) status --porcelain) && if [ -n "$$changed" ]; then \
		echo "check: these files are not committed as they should be:" >&2; echo "$$changed" >&2; exit 1; fi

cross: ## vet and build for every platform
	@for p in $(PLATFORMS); do \
		echo "$$p"; \
		GOOS=$${p%/*} GOARCH=$${p#*/} CGO_ENABLED=0 $(GO) vet ./... && \
		GOOS=$${p%/*} GOARCH=$${p#*/} CGO_ENABLED=0 $(GO) build -o /dev/null ./cmd/ringfence || exit 1; \
	done

fuzz: ## each fuzzer for T (make fuzz T=60s)
	scripts/fuzz.sh $(T)

bench: ## figures beside those of others; writes docs/bench.md
	CGO_ENABLED=0 scripts/need.sh --peers scripts/engines.sh $(GO) run ./test/bench -o docs/bench.md

boxes: ## attacks on every kind of box there can be here; writes docs/sandbox.md
	CGO_ENABLED=0 scripts/need.sh scripts/engines.sh $(GO) run ./test/boxes -o docs/sandbox.md

crash: ## 1,000 kills of engine and clients at random moments
	RINGFENCE_CRASH_ROUNDS=1000 $(GO) test -count=1 -v -timeout 4h -run '^TestCrash$$' ./test/crash

soak: ## 10 minutes of ordinary and hostile clients at once, then 10,000 sessions and 100 restarts
	RINGFENCE_SOAK=10m CGO_ENABLED=0 $(GO) test -count=1 -v -timeout 1h -run '^(TestSoak|TestR16Leak)$$' ./test/load

agents: T = 10m
agents: ## 20 agents at once for T (10m): nothing crosses over, and all go on when the engine was killed
	RINGFENCE_AGENTS=$(T) CGO_ENABLED=0 scripts/need.sh $(GO) test -count=1 -v -timeout 2h -run '^TestSessionsAgents$$' ./test/net

golden: ## rewrite expected outputs; review the difference
	RINGFENCE_TEST_UPDATE=1 $(GO) test -count=1 ./...
