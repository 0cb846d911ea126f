#!/usr/bin/env bash
# Runs the tests of every module with the race detector, then the cluster tests.
# Usage: scripts/test.sh [unit|e2e]     (default: both)
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:-all}

unit() {
	echo "test: unit tests of the main module"
	go test -race -timeout 15m $(go list ./... | grep -v '/test/e2e$')
	echo "test: unit tests of devcluster"
	go -C devcluster test -timeout 15m ./...
}

e2e() {
	scripts/image.sh
	echo "test: the image for workloads"
	bin/devcluster workload-image -o dist/workload.tar >/dev/null
	echo "test: the whole on a cluster"
	# "required": a missing part fails instead of skipping.
	LONGHORN_E2E=required go test -count=1 -timeout 40m -v ./test/e2e/...
}

case $what in
unit) unit ;;
e2e) e2e ;;
all) unit && e2e ;;
*) echo "usage: scripts/test.sh [unit|e2e]" >&2 && exit 2 ;;
esac
