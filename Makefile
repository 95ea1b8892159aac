SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DEFAULT_GOAL := help

# What is stamped into the binary. Without git it is the version "dev" and nothing else.
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
REVISION ?= $(shell git rev-parse HEAD 2>/dev/null)
COMMIT_TIME ?= $(shell TZ=UTC0 git log -1 --date=format-local:%Y-%m-%dT%H:%M:%SZ --format=%cd 2>/dev/null)
STAMPS = -X main.stamped=$(VERSION) $(if $(REVISION),-X main.stampedRevision=$(REVISION) -X main.stampedTime=$(COMMIT_TIME))

BIN := $(CURDIR)/bin
IMAGE ?= tierlimit:dev
PLATFORMS ?= linux/amd64,linux/arm64

# Where generated files go; verify-generated.sh puts them elsewhere to compare.
OBJECT_DIR ?= api/v1alpha1
CRD_DIR ?= config/crd/bases
RBAC_DIR ?= config/rbac
INGRESS_NGINX_DIR ?= config/ingress-nginx
CHART_DIR ?= charts/tierlimit

.PHONY: help
help: ## Show the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Use

.PHONY: run
run: build ## Run local mode: the sample tiers and the embedded store; ARGS adds flags
	$(BIN)/tierlimit --tiers config/samples $(ARGS)

.PHONY: build
build: ## Build the static binary bin/tierlimit
	CGO_ENABLED=0 go build -trimpath -ldflags "-s -w $(STAMPS)" -o $(BIN)/tierlimit ./cmd/tierlimit

# The name kubectl-tierlimit makes it a plugin of kubectl, the other completes the plugin's command line.
BINDIR ?= $(HOME)/.local/bin

.PHONY: install-plugin
install-plugin: build ## Install the program and the plugin `kubectl tierlimit` into BINDIR (default ~/.local/bin)
	install -d "$(BINDIR)"
	install "$(BIN)/tierlimit" "$(BINDIR)/tierlimit"
	ln -sf tierlimit "$(BINDIR)/kubectl-tierlimit"
	ln -sf tierlimit "$(BINDIR)/kubectl_complete-tierlimit"
	case ":$$PATH:" in *":$(BINDIR):"*) ;; *) echo "$(BINDIR) is not in your PATH: add it, or kubectl does not find the plugin" ;; esac

.PHONY: image
image: ## Build the image for PLATFORMS into bin/image, without Docker; IMAGE names it in the archives for docker load
	go -C hack/image run . build -root $(CURDIR) -out $(BIN)/image -name "$(IMAGE)" -platforms $(PLATFORMS) \
		-version "$(VERSION)" -revision "$(REVISION)" -time "$(COMMIT_TIME)"

.PHONY: image-push
image-push: ## Push what `make image` has built to IMAGE, such as registry.example/tierlimit:v0.1.0
	go -C hack/image run . push -from $(BIN)/image -to "$(IMAGE)"

##@ Develop

# Whatever runs tests begins with this: it tells them where the real parts are. A package that is only
# fuzzed needs them too, since its TestMain starts them.
define real_parts
export KUBEBUILDER_ASSETS TIERLIMIT_PROXIES TIERLIMIT_OPENAI_SDK TIERLIMIT_HELM
KUBEBUILDER_ASSETS=$$(hack/setup-controlplane.sh)
TIERLIMIT_PROXIES=$$(hack/setup-proxies.sh)
TIERLIMIT_OPENAI_SDK=$$(hack/setup-openai.sh)
TIERLIMIT_HELM=$$(hack/setup-helm.sh)
endef

.PHONY: test
test: setup ## Install or build what the tests need, then run them all, with the race detector
	$(real_parts)
	go test -race -count=1 -timeout 20m $$(go list ./... | grep -v -e /cmd/tierlimit -e /internal/drills)
	# Bursts and outages of whole processes: two such packages at once would test the machine.
	go test -race -count=1 -timeout 20m -p 1 ./cmd/tierlimit ./internal/drills
	go -C hack/bench test -race -count=1 ./...
	go -C hack/image test -count=1 -timeout 30m ./...

.PHONY: drills
drills: setup ## Run the outage drills and print what was observed; `make test` runs them too
	$(real_parts)
	go test -v -count=1 -timeout 20m ./internal/drills

# Short for a look before a commit; hours find more. A number of runs, such as 2000x, is for CI: at the
# end of a time Go sometimes fails with "context deadline exceeded", which is no finding.
FUZZTIME ?= 30s

.PHONY: fuzz
fuzz: setup ## Run every fuzz test, one after the other, each for FUZZTIME (default 30s)
	$(real_parts)
	for file in $$(grep -rl --include='*_test.go' '^func Fuzz' api cmd internal pkg); do
		for target in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9]*\)(.*/\1/p' $$file); do
			echo "$$file: $$target"
			go test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1000x ./$$(dirname $$file)
		done
	done

.PHONY: verify
verify: tools ## Check that generated files are fresh, formatting, vet, lint and known vulnerabilities
	go mod tidy -diff
	go -C hack/bench mod tidy -diff
	go -C hack/image mod tidy -diff
	hack/verify-generated.sh
	unformatted=$$(gofmt -l .); [[ -z $$unformatted ]] || { echo "not formatted by gofmt:"; echo "$$unformatted"; exit 1; }
	go vet ./...
	go -C hack/bench vet ./...
	go -C hack/image vet ./...
	for module in . hack/bench hack/image; do
		(cd $$module && $(BIN)/golangci-lint-kube-api-linter run --allow-parallel-runners)
	done
	hack/vulncheck.sh

.PHONY: lint
lint: tools ## Run the linters and let them mend what they can
	$(BIN)/golangci-lint-kube-api-linter run --fix --allow-parallel-runners

.PHONY: bench
bench: setup build ## Compare with other limiters on this machine and write docs/performance.md; ARGS adds flags
	go -C hack/bench build -o $(BIN)/bench .
	$(BIN)/bench -out docs $(ARGS)

.PHONY: bench-go
bench-go: setup ## Run the benchmarks of the limiter, of identities, tiers and the check endpoint, against a real Redis
	$(real_parts)
	go test -run '^$$' -bench . -benchmem ./pkg/limiter ./internal/identity ./internal/tier ./internal/tierfile ./internal/webhookserver

.PHONY: dashboard
dashboard: setup ## Draw the dashboard from a real Prometheus under load, as docs/dashboard.svg; about 4 minutes
	$(real_parts)
	TIERLIMIT_DASHBOARD_PICTURE=$(CURDIR)/docs/dashboard.svg go test -count=1 -run 'TestDashboardAndAlertsOnRealLoad' ./config/prometheus

.PHONY: generate
generate: tools ## Generate deep copies, the CustomResourceDefinition, the RBAC role, the recipes for ingress-nginx and the chart's copies
	$(BIN)/controller-gen object:headerFile=hack/boilerplate.go.txt paths=./api/... output:object:dir=$(OBJECT_DIR)
	$(BIN)/controller-gen crd paths=./api/... output:crd:dir=$(CRD_DIR)
	$(BIN)/controller-gen rbac:roleName=tierlimit paths="{./internal/...,./cmd/...}" output:rbac:dir=$(RBAC_DIR)
	for recipe in configmap annotations; do
		go run ./cmd/tierlimit ingress-nginx $$recipe >$(INGRESS_NGINX_DIR)/$$recipe.yaml
	done
	cp $(CRD_DIR)/*.yaml $(CHART_DIR)/crds/
	cp $(RBAC_DIR)/role.yaml config/rbac/quota_roles.yaml config/prometheus/prometheusrule.yaml config/prometheus/dashboard.json $(CHART_DIR)/files/
	go run ./hack/valuesschema charts/tierlimit/values.yaml $(CRD_DIR)/tierlimit.dev_ratelimittiers.yaml >$(CHART_DIR)/values.schema.json
	$(BIN)/helm-docs --chart-search-root charts/tierlimit --sort-values-order file --log-level warning --dry-run >$(CHART_DIR)/README.md

.PHONY: setup
setup: ## Install Debian packages that the tests need, if they are missing
	hack/setup.sh

.PHONY: tools
tools: ## Install the pinned development tools into bin/
	GOBIN=$(BIN) go -C hack/tools install tool
