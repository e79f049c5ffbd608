# tautline: build, test and try it. `make help` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

BIN        := bin/tautline
VERSION    ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS    := -s -w -X main.version=$(VERSION)
GOLANGCI   := go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
PKGS       ?= ./...
# -race needs cgo and a C compiler; without them the tests run all the same.
RACE       := $(shell if [ "$$(go env CGO_ENABLED)" = 1 ] && command -v $$(go env CC) >/dev/null 2>&1; then echo -race; fi)

.PHONY: help
help: ## this list
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  %-22s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## the binary, static, in bin/
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN) ./cmd/tautline

.PHONY: demo
demo: build ## three stand-in model servers and the agent on loopback, a short mixed load, a table
	$(BIN) demo --duration 10s

.PHONY: test
test: build ## every test that this machine can run; skips say why
	go vet $(PKGS)
	go test $(RACE) -timeout 14m $(PKGS)

# Engines of others are built or found outside the repository.
CACHE      ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/tautline
LLMD_SIM   := v0.10.2

$(CACHE)/llm-d-inference-sim-$(LLMD_SIM):
	mkdir -p $@.src
	printf 'module simulator\n\ngo 1.26\n\nrequire github.com/llm-d/llm-d-inference-sim $(LLMD_SIM)\n' > $@.src/go.mod
	cd $@.src && CGO_ENABLED=0 GOFLAGS=-mod=mod go build -o $@ github.com/llm-d/llm-d-inference-sim/cmd/llm-d-inference-sim

.PHONY: test-llm-d-sim
test-llm-d-sim: $(CACHE)/llm-d-inference-sim-$(LLMD_SIM) ## the SDKs through the agent before llm-d's simulator (root; builds it once, minutes)
	LLM_D_SIM=$< go test -count=1 -v -run '^TestLLMDSim$$' ./test/e2e

.PHONY: test-vllm
test-vllm: ## the agent before real vLLM; VLLM=path of a vllm binary
	VLLM='$(VLLM)' go test -count=1 -v -timeout 60m -run '^TestVLLM' ./test/e2e

.PHONY: test-uvicorn
test-uvicorn: ## the splice before uvicorn with uvloop, httptools and h11 (root); UVICORN_PYTHON=path of an interpreter that has them
	UVICORN_PYTHON='$(UVICORN_PYTHON)' go test -count=1 -v -timeout 20m -run '^TestUvicorn$$' ./userspace/splice

.PHONY: test-kernels
test-kernels: ## the tests of the kernel side on Debian's 6.1 and 6.12, emulated; KERNELS="6.1 ..." for others
	test/kernels/run.sh $(KERNELS)

.PHONY: generate
generate: ## rebuild the BPF object and its Go bindings (needs clang)
	go generate ./bpf

.PHONY: lint
lint: ## the linters of .golangci.yml
	$(GOLANGCI) run --allow-parallel-runners ./...
	shellcheck .ci/run $(shell git ls-files '*.sh')

.PHONY: fmt
fmt: ## format Go; the C is in the kernel's style, by hand
	gofmt -w $(shell git ls-files '*.go')

.PHONY: bench
bench: ## the Go benchmarks of the packages and tools
	go test -run '^$$' -bench . -benchmem ./userspace/... ./tools/...

.PHONY: soak
soak: build ## 20,000 watermarked streams through the splice and through the agent, 5,000 open ones, wake-ups (root; minutes)
	go test -count=1 -timeout 60m -run Watermarks ./userspace/splice -args -streams 20000 -clients 200
	TAUTLINE=$(CURDIR)/$(BIN) go test -count=1 -timeout 60m -v ./test/integration -args \
	  -streams 20000 -clients 100 -restarts 4 -think 500ms -abort 100ms -open 5000 -answers 10 -rate 50

.PHONY: study
study: build ## the routing policies over all simulated workloads, 8 seeds (a quarter of an hour on two cores)
	$(BIN) sim --study --overload --seeds 8
