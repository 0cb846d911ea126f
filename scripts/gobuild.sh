#!/usr/bin/env bash
# Builds the Go program in the current directory. Every 10 s it prints how many packages are compiled, because the first
# build takes minutes.
# Usage: scripts/gobuild.sh OUTPUT [FLAG...]       (FLAG: of "go build"; PROGRESS=SECONDS: prints at this interval)
set -euo pipefail
output=$1 name=${1##*/}
shift
interval=${PROGRESS:-10}

log=$(mktemp)
build=""
trap '[ -z "$build" ] || kill "$build" 2>/dev/null || true; rm -f "$log"' EXIT

# problems prints the output of "go build" without the downloads and the names of the packages.
problems() { grep -vE '^(go: downloading .*|[A-Za-z0-9_./~-]+)$' "$log" >&2 || true; }

# "go list" downloads the modules first.
echo "build: $name: looking for packages to compile, and downloading modules"
if ! stale=$(go list -deps "$@" -f '{{if .Stale}}{{.ImportPath}}{{end}}' . 2>"$log"); then
	problems
	exit 1
fi
total=$(grep -c . <<<"$stale" || true)
go build -v "$@" -o "$output" . 2>"$log" &
build=$!
next=$((SECONDS + interval)) began=$SECONDS
while kill -0 "$build" 2>/dev/null; do
	if [ $SECONDS -ge $next ]; then
		next=$((SECONDS + interval))
		compiled=$(grep -cE '^[A-Za-z0-9_./~-]+$' "$log" || true)
		[ "$compiled" -gt 0 ] || continue
		if [ "$compiled" -ge "$total" ]; then
			echo "build: $name: linking"
			continue
		fi
		left=$(((SECONDS - began) * (total - compiled) / compiled)) minutes=""
		[ $left -lt 60 ] || minutes="$((left / 60)) min "
		echo "build: $name: $compiled of $total packages, about $minutes$((left % 60)) s left"
	fi
	sleep 0.2
done
if ! wait "$build"; then
	problems
	exit 1
fi
build=""
