#!/usr/bin/env bash
# Runs Helm in the version that tools/helm pins. Builds bin/helm if it is missing or has another version.
# Usage: scripts/helm.sh [ARGUMENT]...
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
bin=$root/bin/helm
if ! [ -x "$bin" ] || ! [ "$bin.sum" -nt "$bin" ] || ! cmp -s "$bin.sum" "$root/tools/helm/go.sum"; then
	mkdir -p "$root/bin"
	go -C "$root/tools/helm" build -trimpath -o "$bin" helm.sh/helm/v4/cmd/helm >&2
	cp "$root/tools/helm/go.sum" "$bin.sum"
fi
exec "$bin" "$@"
