#!/usr/bin/env bash
# Runs the tests of every module with the race detector, then the cluster tests.
# Usage: scripts/test.sh [unit|e2e]     (default: both)
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:-all}

if [ "$what" != e2e ]; then
	echo "test: unit tests of the main module"
	go test -race -timeout 15m $(go list ./... | grep -v /test/e2e)
	echo "test: unit tests of devcluster"
	go -C devcluster test -timeout 15m ./...
fi
if [ "$what" != unit ]; then
	scripts/image.sh
	echo "test: the whole on a cluster"
	go test -count=1 -timeout 40m -v ./test/e2e/...
fi
