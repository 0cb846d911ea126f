#!/usr/bin/env bash
# Writes deploy/longhorn.yaml, which contains everything that `kubectl apply -f` needs: the namespace, and the chart in
# deploy/chart with its default values. Nothing else writes that file.
# Usage: scripts/manifests.sh [-o FILE]
set -euo pipefail
cd "$(dirname "$0")/.."

out=deploy/longhorn.yaml
[ "${1:-}" != -o ] || out=$2

# rendered prints a template as YAML documents. The script renders one template at a time, because Helm sorts objects by
# kind: the policies must be first and the definitions last (deploy/chart/templates/10-policy-adoption.yaml).
rendered() {
	scripts/helm.sh template longhorn deploy/chart --namespace longhorn-system --kube-version 1.32.0 --show-only "templates/$(basename "$1")" 2> >(grep -v 'found symbolic link' >&2) |
		awk '/^# Source: / { next } /^$/ { blank = 1; next } { if (blank && $0 != "---") print ""; blank = 0; print }'
}

{
	echo "# Made by scripts/manifests.sh of deploy/namespace.yaml and deploy/chart. Change those."
	echo "---"
	cat deploy/namespace.yaml
	for template in deploy/chart/templates/*.yaml; do
		# The leader creates the ConfigMap of settings: applying it would remove what an operator applied before.
		[ "$template" = deploy/chart/templates/80-settings.yaml ] || rendered "$template"
	done
} >"$out.new"
mv "$out.new" "$out"
