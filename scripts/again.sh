#!/usr/bin/env bash
# Runs each failed cluster test once more, alone and on its own cluster: in parallel with others, a test may have failed
# for lack of time. A test that passes in the second run is FLAKY. That is also a defect: docs/flaky.md.
# Usage: scripts/again.sh LOG... -- COMMAND [ARGUMENT...]
# Each LOG is the output of one "go test -v". The script calls COMMAND with "-run EXPRESSION" for each failed test, and
# COMMAND must print that the test passed. The script succeeds if each test passed, in the first or in the second run.
# In these cases it does not run any test again, because a defect could be hidden:
#   - The run was interrupted, or its tests were not the reason for its end: a panic, a signal, a test without a result.
#   - A test says that timing is not the reason for its failure ("not by chance"): data was lost, or a lock had two
#     holders.
#   - More than three tests failed, or no failed test is known.
set -euo pipefail
most=3

refuse() {
	echo "test: nothing is run again: $*" >&2
	exit 1
}

# complete succeeds if each test that started in a log has a result, at the start of a line, and if the run was not
# interrupted.
complete() {
	local started ended
	started=$(sed -n 's/^=== RUN   \(Test[^/ ]*\)$/\1/p' "$1" | sort -u)
	ended=$(sed -n 's/^--- \(PASS\|FAIL\|SKIP\): \(Test[^/ ]*\) .*/\2/p' "$1" | sort -u)
	[ -n "$started" ] && [ "$started" = "$ended" ] &&
		! grep -qE 'panic: |^fatal error: |^signal: |^exit status ([02-9]|1.)|^\*\*\* Test killed' "$1"
}

logs=()
while [ "$1" != -- ]; do
	logs+=("$1")
	shift
done
shift

tests=()
for log in "${logs[@]}"; do
	complete "$log" || refuse "the run that $log shows did not end by its tests alone"
	if grep -q 'not by chance' "$log"; then
		refuse "$log says that a failure is no matter of time: $(grep -m 1 'not by chance' "$log")"
	fi
	mapfile -t of_log < <(sed -n 's/^--- FAIL: \(Test[^/ ]*\) .*/\1/p' "$log")
	tests+=("${of_log[@]}")
done
[ ${#tests[@]} -gt 0 ] || refuse "no test failed, but something else did"
[ ${#tests[@]} -le $most ] || refuse "${#tests[@]} tests failed, more than $most: ${tests[*]}"

output=$(mktemp)
trap 'rm -f "$output"' EXIT
summary=() failed=0
for name in "${tests[@]}"; do
	echo "test: $name failed; once more, alone"
	if "$@" -run "^$name\$" 2>&1 | tee "$output" && grep -q "^--- PASS: $name " "$output"; then
		summary+=("FLAKY $name failed with others in parallel, and passed alone: enter it in docs/flaky.md, and find the cause")
	else
		summary+=("$name failed with others in parallel, and alone")
		failed=1
	fi
done
printf 'test: %s\n' "${summary[@]}"
exit $failed
