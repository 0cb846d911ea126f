#!/usr/bin/env bash
# Runs every fuzz target of the module for FUZZTIME each (default 10s). What a target
# finds is kept by Go in testdata/fuzz beside it: commit that with the fix.
# Usage: scripts/fuzz.sh [PACKAGE...]     (default: all)
set -euo pipefail
cd "$(dirname "$0")/.."

time=${FUZZTIME:-10s}
packages=("$@")
[ $# -gt 0 ] || packages=(./...)
log=$(mktemp)
trap 'rm -f "$log"' EXIT
count=0
failed=()

# run_target fails when the target found something. On a busy machine Go's fuzzer can also
# end with "context deadline exceeded" and no input, when its time is up in the middle of a
# run: that found nothing, and is run once more.
run_target() { # run_target TARGET PACKAGE
	local try
	for try in 1 2; do
		if go test -run '^$' -fuzz "^$1\$" -fuzztime "$time" "$2" 2>&1 | tee "$log"; then
			return 0
		fi
		if ! grep -q 'context deadline exceeded' "$log" || grep -q 'Failing input written' "$log"; then
			return 1
		fi
		echo "fuzz: $1 ran out of time in try $try"
	done
	return 1
}

while read -r dir package; do
	while read -r target; do
		count=$((count + 1))
		echo "fuzz: $package $target for $time"
		run_target "$target" "$package" || failed+=("$package $target")
	done < <(grep -hoE '^func Fuzz[A-Za-z0-9_]+' "$dir"/*_test.go 2>/dev/null | sed 's/^func //')
done < <(go list -f '{{.Dir}} {{.ImportPath}}' "${packages[@]}")

[ "$count" -gt 0 ] || { echo "fuzz: no fuzz target in ${packages[*]}" >&2; exit 1; }
if [ ${#failed[@]} -gt 0 ]; then
	printf 'fuzz: failed: %s\n' "${failed[@]}" >&2
	echo "fuzz: each failing input is named above; 'go test -run TARGET/INPUT PACKAGE' repeats it" >&2
	exit 1
fi
echo "fuzz: $count targets, nothing found"
