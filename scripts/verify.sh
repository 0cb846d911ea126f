#!/usr/bin/env bash
# Does checks so that a reviewer need not do them. Generated code and deploy/longhorn.yaml must be equal to the output
# of their generators. Module files must be tidy. The linters must find no problem in code and in prose.
# Usage: scripts/verify.sh [generated|manifests|modules|lint|prose|page]...     (default: all)
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD

failed=()
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# generated creates all generated code in a copy of the tree and compares every file. So it also finds files that no
# check names, and files that no generator writes any longer.
generated() {
	mkdir "$scratch/tree"
	git ls-files -z --cached --others --exclude-standard |
		while IFS= read -r -d '' file; do [ ! -e "$file" ] || printf '%s\0' "$file"; done |
		tar --null -T - -cf - | tar -xf - -C "$scratch/tree"
	cp -a "$scratch/tree" "$scratch/before"
	if ! (cd "$scratch/tree" && TOOLS_BIN=$root/bin scripts/generate.sh) >"$scratch/generate.log" 2>&1; then
		tail -20 "$scratch/generate.log"
		echo "verify: scripts/generate.sh failed as above"
		return 1
	fi
	diff -ru "$scratch/before" "$scratch/tree" | head -60 || true
	if ! diff -rq "$scratch/before" "$scratch/tree" >/dev/null; then
		echo "verify: generated code is not up to date (first differences above); run make generate and commit what it changed"
		return 1
	fi
}

manifests() {
	scripts/manifests.sh -o "$scratch/longhorn.yaml"
	diff -u deploy/longhorn.yaml "$scratch/longhorn.yaml" | head -40 || true
	if ! cmp -s deploy/longhorn.yaml "$scratch/longhorn.yaml"; then
		echo "verify: deploy/longhorn.yaml is not what deploy/chart and k8s/crds make; run scripts/manifests.sh and commit it"
		return 1
	fi
}

modules() {
	local module rc=0
	while read -r module; do
		module=$(dirname "$module")
		if ! (cd "$module" && go mod tidy -diff) >"$scratch/tidy.diff" 2>"$scratch/tidy.log"; then
			head -20 "$scratch/tidy.diff"
			grep -v '^go: downloading' "$scratch/tidy.log" | tail -5 || true
			echo "verify: $module/go.mod is not tidy; run 'go -C $module mod tidy' and commit go.mod and go.sum"
			rc=1
		fi
	done < <(git ls-files --cached --others --exclude-standard -- go.mod '*/go.mod')
	return $rc
}

lint() { scripts/lint.sh; }

prose() { scripts/prose.sh; }

page() {
	if grep -nE '"resolved"|https?://[^"]*registry' ui/package-lock.json | head -3 | grep .; then
		echo "verify: ui/package-lock.json names a registry, as above; create it again with the .npmrc of ui/ (npm install)"
		return 1
	fi
	scripts/ui.sh check
}

checks=("$@")
[ $# -gt 0 ] || checks=(generated manifests modules lint prose page)
for check in "${checks[@]}"; do
	case $check in
	generated | manifests | modules | lint | prose | page) ;;
	*) echo "verify: $check: must be generated, manifests, modules, lint, prose or page" >&2; exit 2 ;;
	esac
	start=$SECONDS
	echo "verify: $check"
	if "$check"; then
		echo "verify: $check is right ($((SECONDS - start)) s)"
	else
		failed+=("$check")
	fi
done
if [ ${#failed[@]} -gt 0 ]; then
	echo "verify: wrong: ${failed[*]}" >&2
	exit 1
fi
