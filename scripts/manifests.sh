#!/usr/bin/env bash
# Makes deploy/longhorn.yaml, all that `kubectl apply -f` needs, of deploy/manifests
# and the CRDs in k8s/crds. Nothing else writes that file.
# Usage: scripts/manifests.sh [-o FILE]
set -euo pipefail
cd "$(dirname "$0")/.."

out=deploy/longhorn.yaml
[ "${1:-}" != -o ] || out=$2

# crd prints a definition with the labels by which a daemon knows its own installation.
crd() {
	awk '{ print }
		/^metadata:$/ && !done { print "  labels:\n    longhorn-manager: \"\"\n    longhorn.io/installation: lep"; done = 1 }' "$1"
}

# part prints a file as one more YAML document.
part() { # part COMMAND FILE
	echo "---"
	"$1" "$2" | sed '1{/^---$/d}'
}

{
	echo "# Made by scripts/manifests.sh of deploy/manifests and k8s/crds. Change those."
	for file in deploy/manifests/*.yaml; do
		part cat "$file"
	done
	# Last: see 10-policy-adoption.yaml. Daemons that start before them wait for them.
	for file in k8s/crds/*.yaml; do
		part crd "$file"
	done
} >"$out.new"
mv "$out.new" "$out"
