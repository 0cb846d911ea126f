#!/usr/bin/env bash
# Builds the web page from ui/ into ui/page/built, which the program embeds. It does nothing if the sources did not
# change.
# Usage: scripts/ui.sh [build|check|packages|fresh]       (default: build)
#        check: types, eslint, tests; packages: installs them; fresh: succeeds if the built page is up to date
# Packages come from the registry that npm is configured for. ui/package-lock.json names no registry, and has the
# packages' checksums.
set -euo pipefail
cd "$(dirname "$0")/../ui"
what=${1:-build}

say() { echo "ui: $*"; }
# need_node ends the script if npm is missing or node is too old. A page that is up to date needs neither.
need_node() {
	command -v npm >/dev/null || { say "npm is missing; run scripts/setup" >&2; exit 1; }
	node -e 'process.exit(Number(process.versions.node.split(".")[0]) >= 18 ? 0 : 1)' || { say "node $(node --version) is too old; 18 or later is needed" >&2; exit 1; }
}

# packages installs the packages of the lock file if the file changed. "npm ci" would refuse a lock file without the
# tools' builds for other platforms. Some registries lack these builds.
packages() {
	local sum log
	need_node
	sum=$(cat package.json package-lock.json .npmrc | sha256sum)
	[ "$(cat node_modules/.sum 2>/dev/null)" = "$sum" ] && return
	say "installing packages"
	log=$(mktemp)
	if ! npm install --no-save --no-progress >"$log" 2>&1; then
		tail -20 "$log" >&2
		say "npm install failed (whole log: $log)" >&2
		exit 1
	fi
	rm -f "$log"
	echo "$sum" >node_modules/.sum
}

sources() {
	{ find src -type f ! -name '*.test.ts' -print0 | sort -z | xargs -0 sha256sum; sha256sum index.html package-lock.json tsconfig.json vite.config.js; } | sha256sum
}

# fresh succeeds if the built page is up to date.
fresh() { [ -s page/built/index.html.gz ] && [ "$(cat page/built/.sum 2>/dev/null)" = "$(sources)" ]; }

build() {
	if fresh; then
		say "ui/page/built is up to date"
		return
	fi
	local sum
	sum=$(sources)
	packages
	npx --no-install tsc --noEmit
	npx --no-install vite build --logLevel warn
	echo "$sum" >page/built/.sum
	say "ui/page/built made: $(find page/built -name '*.gz' -print0 | xargs -0 cat | wc -c) bytes, compressed"
}

check() {
	packages
	npx --no-install tsc --noEmit
	npx --no-install eslint --max-warnings 0 .
	npx --no-install vitest run --silent
}

case $what in
build | check | packages | fresh) "$what" ;;
*) echo "usage: scripts/ui.sh [build|check|packages|fresh]" >&2 && exit 2 ;;
esac
