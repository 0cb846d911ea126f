#!/usr/bin/env bash
# Finds idioms, long sentences and long lines in the pages, and idioms and long sentences in the comments of Go code.
# The rules are in tools/prose/styles. Vale applies them: the first run of the script builds Vale into bin/, which takes
# minutes. The script skips the comments of the directories in tools/prose/later.txt: that list must only get shorter.
# Usage: scripts/prose.sh [FILE...]     (default: all pages and all Go files)
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/tool.sh
CGO=1 tool vale tools/prose github.com/vale-cli/vale/v3/cmd/vale

lines() { [ $# -eq 0 ] || printf '%s\n' "$@"; }

later=$({ grep -v '^#' tools/prose/later.txt || true; } | paste -sd'|')
mapfile -t listed < <(git ls-files --cached --others --exclude-standard -- "$@" | sort -u)
pages=() code=()
for file in "${listed[@]}"; do
	[ -e "$file" ] || continue
	case $file in
	*.md) pages+=("$file") ;;
	*.go) code+=("$file") ;;
	esac
done
mapfile -t code < <(lines "${code[@]}" | grep -vE "^k8s/client/|\.pb\.go$|/zz_|^(${later:-none})/[^/]*$")
long=$(lines "${pages[@]}" | xargs -rd '\n' perl -CSD -ne '
	chomp;
	$code = 0 if $. == 1;
	$code = !$code if /^```/;
	print "$ARGV:$.: a line of ".length($_)." characters: 120 are allowed, except in tables and blocks\n" if !$code && !/^(\||    |#)/ && length($_) > 120;
	close ARGV if eof')
[ -z "$long" ] || echo "$long"
lines "${pages[@]}" "${code[@]}" | xargs -rd '\n' bin/vale --config tools/prose/vale.ini --output line
[ -z "$long" ]
