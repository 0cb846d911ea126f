#!/usr/bin/env bash
# Runs each cluster test that failed once more, alone and on a cluster of its own: beside others a test may have failed for lack of time.
# A test that passes then is FLAKY, which is a defect, too: docs/flaky.md.
# Usage: scripts/again.sh LOG... -- COMMAND [ARGUMENT...]
# Each LOG is what one "go test -v" printed. COMMAND is called with "-run EXPRESSION" for each test that failed, and fails if the test does.
# This succeeds if all tests passed, now or before. A run that ended without the name of a test (a panic, a cluster that was not cleared), and
# more than three failures, are no bad luck.
set -euo pipefail
most=3

logs=()
while [ "$1" != -- ]; do
	logs+=("$1")
	shift
done
shift

tests=()
for log in "${logs[@]}"; do
	if grep -q $'^ok  \t' "$log"; then
		continue
	fi
	mapfile -t of_log < <(sed -n 's/^--- FAIL: \([^ ]*\) .*/\1/p' "$log")
	if [ ${#of_log[@]} -eq 0 ] || grep -q '^panic: ' "$log"; then
		echo "test: what $log shows failed otherwise than by a test, so nothing is run again" >&2
		exit 1
	fi
	tests+=("${of_log[@]}")
done
if [ ${#tests[@]} -gt $most ]; then
	echo "test: ${#tests[@]} tests failed, more than $most, so none is run again: ${tests[*]}" >&2
	exit 1
fi

summary=() failed=0
for name in "${tests[@]}"; do
	echo "test: $name failed; once more, alone"
	if "$@" -run "^$name\$"; then
		summary+=("FLAKY $name failed beside others, and passed alone: enter it in docs/flaky.md, and find the cause")
	else
		summary+=("$name failed beside others, and alone")
		failed=1
	fi
done
if [ ${#summary[@]} -gt 0 ]; then
	printf 'test: %s\n' "${summary[@]}"
fi
exit $failed
