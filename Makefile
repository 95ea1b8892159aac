SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DEFAULT_GOAL := help

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
BIN := $(CURDIR)/bin
IMAGE ?= tierlimit:dev

# Where generated files go; verify-generated.sh puts them elsewhere to compare.
OBJECT_DIR ?= api/v1alpha1
CRD_DIR ?= config/crd/bases
RBAC_DIR ?= config/rbac
INGRESS_NGINX_DIR ?= config/ingress-nginx

.PHONY: help
help: ## Show the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Use

.PHONY: run
run: build ## Run local mode: the sample tiers and the embedded store; ARGS adds flags
	$(BIN)/tierlimit --tiers config/samples $(ARGS)

.PHONY: build
build: ## Build the static binary bin/tierlimit
	CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.stamped=$(VERSION)" -o $(BIN)/tierlimit ./cmd/tierlimit

.PHONY: image
image: ## Build the image IMAGE (default tierlimit:dev) with Docker
	docker build --build-arg VERSION=$(VERSION) -t $(IMAGE) .

##@ Develop

.PHONY: test
test: setup ## Install or build what the tests need, then run them all, with the race detector
	export KUBEBUILDER_ASSETS TIERLIMIT_PROXIES TIERLIMIT_OPENAI_SDK
	KUBEBUILDER_ASSETS=$$(hack/setup-controlplane.sh)
	TIERLIMIT_PROXIES=$$(hack/setup-proxies.sh)
	TIERLIMIT_OPENAI_SDK=$$(hack/setup-openai.sh)
	go test -race -count=1 -timeout 20m ./...
	go -C hack/bench test -race -count=1 ./...

.PHONY: drills
drills: setup ## Run the outage drills and print what was observed; `make test` runs them too
	export KUBEBUILDER_ASSETS
	KUBEBUILDER_ASSETS=$$(hack/setup-controlplane.sh)
	go test -v -count=1 -timeout 20m ./internal/drills

# Short for a look before a commit; hours find more.
FUZZTIME ?= 30s

.PHONY: fuzz
fuzz: setup ## Run every fuzz test, one after the other, each for FUZZTIME (default 30s)
	for file in $$(grep -rl --include='*_test.go' '^func Fuzz' api cmd internal pkg); do
		for target in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9]*\)(.*/\1/p' $$file); do
			echo "$$file: $$target"
			go test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) ./$$(dirname $$file)
		done
	done

.PHONY: verify
verify: tools ## Check that generated files are fresh, formatting, vet and lint
	go mod tidy -diff
	go -C hack/bench mod tidy -diff
	hack/verify-generated.sh
	unformatted=$$(gofmt -l .); [[ -z $$unformatted ]] || { echo "not formatted by gofmt:"; echo "$$unformatted"; exit 1; }
	go vet ./...
	go -C hack/bench vet ./...
	$(BIN)/golangci-lint-kube-api-linter run --allow-parallel-runners
	cd hack/bench
	$(BIN)/golangci-lint-kube-api-linter run --allow-parallel-runners

.PHONY: lint
lint: tools ## Run the linters and let them mend what they can
	$(BIN)/golangci-lint-kube-api-linter run --fix --allow-parallel-runners

.PHONY: bench
bench: setup build ## Compare with other limiters on this machine and write docs/performance.md; ARGS adds flags
	go -C hack/bench build -o $(BIN)/bench .
	$(BIN)/bench -out docs $(ARGS)

.PHONY: bench-go
bench-go: setup ## Run the benchmarks of the limiter, of identities, tiers and the check endpoint, against a real Redis
	go test -run '^$$' -bench . -benchmem ./pkg/limiter ./internal/identity ./internal/tier ./internal/tierfile ./internal/webhookserver

.PHONY: generate
generate: tools ## Generate deep copies, the CustomResourceDefinition, the RBAC role and the recipes for ingress-nginx
	$(BIN)/controller-gen object:headerFile=hack/boilerplate.go.txt paths=./api/... output:object:dir=$(OBJECT_DIR)
	$(BIN)/controller-gen crd paths=./api/... output:crd:dir=$(CRD_DIR)
	$(BIN)/controller-gen rbac:roleName=tierlimit paths="{./internal/...,./cmd/...}" output:rbac:dir=$(RBAC_DIR)
	for recipe in configmap annotations; do
		go run ./cmd/tierlimit ingress-nginx $$recipe >$(INGRESS_NGINX_DIR)/$$recipe.yaml
	done

.PHONY: setup
setup: ## Install Debian packages that the tests need, if they are missing
	hack/setup.sh

.PHONY: tools
tools: ## Install the pinned development tools into bin/
	GOBIN=$(BIN) go -C hack/tools install tool
