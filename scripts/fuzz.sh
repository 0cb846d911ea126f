#!/usr/bin/env bash
# Runs every fuzz target of the module for FUZZTIME each (default 10s), FUZZJOBS of them at a time (default 1). Go saves
# the inputs that make a target fail in testdata/fuzz next to it: commit them with the fix.
# Usage: scripts/fuzz.sh [PACKAGE...]     (default: all)
set -euo pipefail
cd "$(dirname "$0")/.."

time=${FUZZTIME:-10s}
jobs=${FUZZJOBS:-1}
packages=("$@")
[ $# -gt 0 ] || packages=(./...)
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
count=0

# run_target fails if the target found something. On a busy machine Go's fuzzer can also fail with "context deadline
# exceeded" and without an input, when its time is over in the middle of a run. In that case it has not found a failing
# input, and the script runs it once more.
run_target() { # run_target TARGET PACKAGE LOG
	local try
	for try in 1 2; do
		if go test -run '^$' -fuzz "^$1\$" -fuzztime "$time" "$2" >"$3" 2>&1; then
			return 0
		fi
		if ! grep -q 'context deadline exceeded' "$3" || grep -q 'Failing input written' "$3"; then
			return 1
		fi
		echo "fuzz: $1 ran out of time in try $try"
	done
	return 1
}

fuzz() { # fuzz TARGET PACKAGE NUMBER
	local log=$logs/$3
	if run_target "$1" "$2" "$log"; then
		tail -2 "$log"
	else
		cat "$log"
		echo "$2 $1" >>"$logs/failed"
	fi
}

while read -r dir package; do
	while read -r target; do
		count=$((count + 1))
		while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do
			wait -n || true
		done
		echo "fuzz: $package $target for $time"
		fuzz "$target" "$package" "$count" &
	done < <(grep -hoE '^func Fuzz[A-Za-z0-9_]+' "$dir"/*_test.go 2>/dev/null | sed 's/^func //')
done < <(go list -f '{{.Dir}} {{.ImportPath}}' "${packages[@]}")
wait

[ "$count" -gt 0 ] || { echo "fuzz: no fuzz target in ${packages[*]}" >&2; exit 1; }
if [ -s "$logs/failed" ]; then
	sed 's/^/fuzz: failed: /' "$logs/failed" >&2
	echo "fuzz: each failing input is named above; 'go test -run TARGET/INPUT PACKAGE' repeats it" >&2
	exit 1
fi
echo "fuzz: $count targets, nothing found"
