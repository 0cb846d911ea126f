#!/usr/bin/env bash
# Runs gofumpt, go vet and golangci-lint on every module. Builds the tools into bin/ if they are missing or their
# versions changed. The build of golangci-lint takes minutes, once.
# Usage: scripts/lint.sh [--fix] [MODULE...]     (modules: . devcluster test/policy test/alerts; default: all)
set -euo pipefail
cd "$(dirname "$0")/.."

fix=
if [ "${1:-}" = --fix ]; then
	fix=1
	shift
fi
modules=("$@")
[ $# -gt 0 ] || modules=(. devcluster test/policy test/alerts)

. scripts/tool.sh
tool gofumpt tools mvdan.cc/gofumpt
tool golangci-lint tools/lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint

failed=
note() {
	echo "lint: $*" >&2
	failed=1
}
for module in "${modules[@]}"; do
	echo "lint: module $module"
	# Generated files keep the format of their generators.
	files=$(git -C "$module" ls-files --cached --others --exclude-standard -- '*.go' |
		grep -v -e '^k8s/client/' -e '\.pb\.go$' -e '/zz_' || true)
	[ "$module" != . ] || files=$(grep -v -e '^devcluster/' -e '^test/policy/' -e '^test/alerts/' <<<"$files" || true)
	if [ -n "$fix" ]; then
		(cd "$module" && xargs -r "$OLDPWD/bin/gofumpt" -w <<<"$files")
	fi
	unformatted=$(cd "$module" && xargs -r "$OLDPWD/bin/gofumpt" -l <<<"$files")
	[ -z "$unformatted" ] || note "not formatted, run scripts/lint.sh --fix: $(tr '\n' ' ' <<<"$unformatted")"
	(cd "$module" && go vet ./...) || note "go vet found the above in module $module"
	(cd "$module" && "$OLDPWD/bin/golangci-lint" run ${fix:+--fix} --config "$OLDPWD/.golangci.yml" ./...) ||
		note "golangci-lint found the above in module $module; scripts/lint.sh --fix mends what can be mended by machine"
done
[ -z "$failed" ]
