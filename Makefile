# Index of what can be done here; the work is in scripts/, each runnable alone.
SHELL := /bin/bash
.DEFAULT_GOAL := help

.PHONY: help
help: ## show this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: ## install the Debian packages that everything below needs
	@scripts/setup

.PHONY: setup-demo
setup-demo: ## install only the Debian packages that the demo needs
	@scripts/setup demo

.PHONY: build
build: ## build bin/longhorn-manager and bin/devcluster
	@scripts/build.sh

.PHONY: ui
ui: ## build the web page, for go build to embed
	@scripts/ui.sh

.PHONY: demo
demo: setup-demo build ## a cluster on this machine, a pod writing to a replicated volume
	@scripts/demo.sh up

.PHONY: demo-down
demo-down: ## remove all that the demo started
	@scripts/demo.sh down

.PHONY: test
test: setup build ## the tests of all modules, and what users do every day on a cluster: 25 minutes
	@scripts/test.sh

.PHONY: test-all
test-all: setup build ## all of "make test", and on clusters whose parts fail: an hour
	@scripts/test.sh all

.PHONY: unit
unit: ## the tests that need no cluster
	@scripts/test.sh unit

.PHONY: e2e
e2e: setup build ## the cluster tests alone, without the long ones
	@scripts/test.sh e2e

.PHONY: test-long
test-long: setup build ## the long runs: the commands of the documents, six rounds of each power loss, the update of an older release, 2,000 checked histories, deep exploration
	@scripts/test.sh long

.PHONY: test-shares
test-shares: setup build ## the long runs on shared volumes: their servers fail 70 times, 50 at once, 100,000 small files
	@scripts/test.sh shares

.PHONY: test-outages
test-outages: setup build ## the long runs on outages: the API server and the leader's node are away for minutes
	@scripts/test.sh outages

.PHONY: bench
bench: setup build ## IOPS, throughput, memory and CPU of the data plane, as a table
	@scripts/bench.sh

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME (10s) each
	@scripts/fuzz.sh

.PHONY: image
image: build ## dist/longhorn-manager.tar, the one image for all roles; ARCH=arm64: dist/longhorn-manager-arm64.tar
	@scripts/image.sh

.PHONY: generate
generate: ## generate all generated code again
	@scripts/generate.sh

.PHONY: verify
verify: ## generated code, manifests and module files are what they should be; lint of code and prose; the page's types and tests
	@scripts/verify.sh

.PHONY: check
check: ## before a commit: format, vet, prose and short tests of the files that differ from main; about a minute
	@scripts/check.sh

.PHONY: lint
lint: ## gofumpt, go vet and golangci-lint, every module
	@scripts/lint.sh

.PHONY: vendor
vendor: ## vendor/ for builds without a network; not committed
	go mod vendor
