#!/usr/bin/env bash
# Runs the tests of every module with the race detector, then the cluster tests.
# Usage: scripts/test.sh [unit|e2e|long]     (default: unit and e2e)
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:-all}

# plain tests without the race detector, built as scripts/build.sh builds, so that nothing is compiled twice.
plain() { CGO_ENABLED=0 go test -trimpath -count=1 "$@"; }

unit() {
	echo "test: unit tests of the main module"
	go test -race -timeout 15m $(go list ./... | grep -v '/test/e2e$')
	echo "test: the whole search of the membership rules, which the race detector makes too slow"
	plain -v -run TestEveryReachableState ./membership/explore
	echo "test: what users write by hand, and what a disk may hold, fuzzed for a minute each"
	FUZZTIME=60s FUZZJOBS=3 scripts/fuzz.sh ./disk ./controller/node/defaults
	echo "test: unit tests of devcluster"
	go -C devcluster test -timeout 15m ./...
}

images() {
	scripts/image.sh
	echo "test: the image for workloads"
	bin/devcluster workload-image -o dist/workload.tar >/dev/null
}

# cluster runs cluster tests. "required": a missing part fails instead of skipping.
cluster() { LONGHORN_E2E=required plain -v -parallel 3 "$@" ./test/e2e; }

e2e() {
	images
	echo "test: the whole on a cluster, and its failures"
	cluster -timeout 60m
}

# long repeats by the dozen what the others do once; it takes hours.
long() {
	echo "test: deep exploration of the membership rules, 2,000 histories under faults, 190 disks taken away"
	LONG=1 plain -timeout 3h -v ./membership/explore ./test/faults ./test/mounts
	images
	echo "test: 20 rounds of each power loss"
	LONG_ROUNDS=20 cluster -timeout 3h -run TestPowerIsLost
}

case $what in
unit) unit ;;
e2e) e2e ;;
long) long ;;
all)
	unit # not "unit && e2e": that would switch "set -e" off inside
	e2e
	;;
*) echo "usage: scripts/test.sh [unit|e2e|long]" >&2 && exit 2 ;;
esac
