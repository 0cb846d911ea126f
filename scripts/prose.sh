#!/usr/bin/env bash
# Finds idioms, long sentences and long lines in the pages, and idioms and long sentences in the comments of Go code.
# The rules are in tools/prose/styles. Vale applies them: the first run of the script builds Vale into bin/, which takes
# minutes. The script skips the comments of the directories in tools/prose/later.txt: that list must only get shorter.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/tool.sh
CGO=1 tool vale tools/prose github.com/vale-cli/vale/v3/cmd/vale

later=$({ grep -v '^#' tools/prose/later.txt || true; } | paste -sd'|')
files() {
	git ls-files --cached --others --exclude-standard -- '*.md'
	git ls-files --cached --others --exclude-standard -- '*.go' |
		grep -vE "^k8s/client/|\.pb\.go$|/zz_|^(${later:-none})/[^/]*$"
}
long=$(git ls-files --cached --others --exclude-standard -- '*.md' | xargs perl -CSD -ne '
	chomp;
	$code = 0 if $. == 1;
	$code = !$code if /^```/;
	print "$ARGV:$.: a line of ".length($_)." characters: 120 are allowed, except in tables and blocks\n" if !$code && !/^(\||    |#)/ && length($_) > 120;
	close ARGV if eof')
[ -z "$long" ] || echo "$long"
files | while IFS= read -r file; do [ ! -e "$file" ] || printf '%s\0' "$file"; done |
	xargs -0 bin/vale --config tools/prose/vale.ini --output line
[ -z "$long" ]
