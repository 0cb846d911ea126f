#!/usr/bin/env bash
# Runs each failed cluster test once more, alone and on its own cluster: in parallel with others, a test may have failed
# for lack of time. A test that passes then is FLAKY, which is a defect, too: docs/flaky.md.
# Usage: scripts/again.sh LOG... -- COMMAND [ARGUMENT...]
# Each LOG is the output of one "go test -v". COMMAND is called with "-run EXPRESSION" for each failed test, and fails
# if the test fails. This script succeeds if all tests passed, now or before. It runs nothing again in two cases, which
# are not bad luck: a run failed without naming a test (a panic, a cluster that was not removed), or more than three
# tests failed.
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
