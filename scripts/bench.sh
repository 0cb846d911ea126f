#!/usr/bin/env bash
# Measures the data plane and, for comparison, a plain file: three instance managers in three network namespaces,
# without Kubernetes. See test/bench.
# Usage: scripts/bench.sh [-quick] [-runtime 5s] [-runs 3] [-dir DIR] ...   (as root; -h lists all)
set -euo pipefail
cd "$(dirname "$0")/.."

[ "$(id -u)" = 0 ] || { echo "bench: run as root: network namespaces and block devices are made" >&2; exit 1; }
for tool in fio ip nsenter; do
	command -v "$tool" >/dev/null || { echo "bench: $tool is missing; run scripts/setup" >&2; exit 1; }
done
fio --enghelp | grep -q '^[[:space:]]*nbd$' || { echo "bench: this fio has no nbd engine; install Debian's" >&2; exit 1; }

scripts/build.sh manager >&2 # without cgo: the program marks all its threads as I/O flushers
CGO_ENABLED=0 go build -trimpath -o bin/bench ./test/bench
exec bin/bench "$@"
