#!/usr/bin/env bash
# Checks what changed against main, before a commit: gofumpt, go vet, the rules of prose, and the short tests of the
# changed packages and of the packages that import them directly. After a small change it takes about a minute. It
# prints what it checks. It does not replace "make verify" and "make unit", which check everything.
# Usage: scripts/check.sh [REVISION]     (compares with the point where this branch left REVISION; default: origin/main,
#                                         or main if there is no origin/main)
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/tool.sh

say() { echo "check: $*"; }
fail() { echo "check: $*" >&2; exit 2; }

# base prints the commit with which the working tree is compared.
base() {
	local revision
	for revision in "$@"; do
		if git rev-parse --verify --quiet "$revision^{commit}" >/dev/null; then
			git merge-base HEAD "$revision" || fail "this branch and $revision have no common commit"
			return
		fi
	done
	fail "none of these revisions exists: $*; name another one: scripts/check.sh REVISION"
}

# changed prints the files that differ from the commit, including deleted and new files.
changed() {
	git -c core.quotePath=false diff --no-renames --name-only "$1"
	git -c core.quotePath=false ls-files --others --exclude-standard
}

# directory prints the directory of the package that a file belongs to. The tests of pages and of scripts are elsewhere.
# It prints nothing for a file that belongs to no package.
directory() {
	local dir
	case $1 in
	*.md) echo test/docs && return ;;
	Makefile | scripts/*) echo test/scripts && return ;;
	esac
	dir=$(dirname "$1")
	# A package may have lost its last Go file: its importers must still be tested.
	if [[ $1 == *.go && $1 != */testdata/* ]]; then
		echo "$dir"
		return
	fi
	dir=${dir%%/testdata*}
	while [ "$dir" != . ]; do
		if compgen -G "$dir/*.go" >/dev/null; then
			echo "$dir"
			return
		fi
		dir=$(dirname "$dir")
	done
}

# module prints the directory of the module that contains a directory.
module() {
	local dir=$1
	while [ "$dir" != . ] && [ ! -e "$dir/go.mod" ]; do dir=$(dirname "$dir"); done
	echo "$dir"
}

# importers prints the packages of a module that import one of the packages directly, also only in their tests.
importers() { # importers MODULE PACKAGE...
	go -C "$1" list -e -f '{{$p := .ImportPath}}{{range .Imports}}{{.}} {{$p}}
{{end}}{{range .TestImports}}{{.}} {{$p}}
{{end}}{{range .XTestImports}}{{.}} {{$p}}
{{end}}' ./... | awk 'NR == FNR { changed[$1]; next } $1 in changed { print $2 }' <(printf '%s\n' "${@:2}") - | sort -u
}

# list prints the packages of a module, relative to it.
list() { # list PATH-OF-THE-MODULE PACKAGE...
	local p names=()
	for p in "${@:2}"; do
		p=${p#"$1"}
		names+=(".$p")
	done
	echo "${names[*]:-none}"
}

failed=()
gofumpt() { # gofumpt FILE...
	local unformatted
	tool gofumpt tools mvdan.cc/gofumpt
	unformatted=$(bin/gofumpt -l "$@") || failed+=(gofumpt)
	[ -n "$unformatted" ] || return 0
	say "not formatted, run scripts/lint.sh --fix: $(tr '\n' ' ' <<<"$unformatted")"
	failed+=(gofumpt)
}

# packages checks the changed packages of one module. The flags are those of the module's builds, so that a package is
# compiled only once.
packages() { # packages MODULE DIRECTORY...
	local module=$1 path dir all=() there=() users=() flags=()
	path=$(go -C "$module" list -m)
	for dir in "${@:2}"; do
		dir=$path/$dir
		[ "$module" = . ] || dir=$path${dir#"$path/$module"}
		dir=${dir%/.}
		all+=("$dir")
	done
	mapfile -t there < <(go -C "$module" list -e -f '{{.ImportPath}}' ./... | grep -Fx -f <(printf '%s\n' "${all[@]}") || true)
	mapfile -t users < <(importers "$module" "${all[@]}" | grep -Fvx -f <(printf '%s\n' "${all[@]}") || true)
	[ "$module" != . ] || flags=(-trimpath)
	say "module $module: changed packages: $(list "$path" "${there[@]}")"
	say "module $module: packages that import them: $(list "$path" "${users[@]}")"
	if [ ${#there[@]} -gt 0 ]; then
		say "go vet of the changed packages"
		go -C "$module" vet "${flags[@]}" "${there[@]}" || failed+=("go vet in module $module")
	fi
	if [ $((${#there[@]} + ${#users[@]})) -gt 0 ]; then
		say "go test -short of all these packages"
		go -C "$module" test -short "${flags[@]}" "${there[@]}" "${users[@]}" || failed+=("go test in module $module")
	fi
}

if [ $# -gt 0 ]; then revisions=("$1"); else revisions=(origin/main main); fi
since=$(base "${revisions[@]}")
mapfile -t files < <(changed "$since" | sort -u)
say "${#files[@]} files differ from $(git log -1 --format='%h (%s)' "$since")"
[ ${#files[@]} -gt 0 ] || exit 0

formatted=() prose=() directories=()
for file in "${files[@]}"; do
	case $file in
	*go.mod | *go.sum) say "$file changed: run make unit, which tests everything that depends on it" ;;
	esac
	mapfile -t -O ${#directories[@]} directories < <(directory "$file")
	[ -e "$file" ] || continue
	case $file in
	k8s/client/* | *.pb.go | */zz_*) ;;
	*.go) formatted+=("$file") prose+=("$file") ;;
	*.md) prose+=("$file") ;;
	esac
	[[ $file != *.go ]] || directories+=(test/archtest) # the rules for imports
done

if [ ${#formatted[@]} -gt 0 ]; then
	say "gofumpt of ${#formatted[@]} files"
	gofumpt "${formatted[@]}"
fi
if [ ${#prose[@]} -gt 0 ]; then
	say "prose of ${#prose[@]} files"
	scripts/prose.sh "${prose[@]}" || failed+=(prose)
fi
declare -A of
for dir in "${directories[@]}"; do
	of[$(module "$dir")]+=$dir$'\n'
done
export CGO_ENABLED=0
for module in . devcluster test/policy test/alerts; do
	[ -n "${of[$module]:-}" ] || continue
	[ "$module" = . ] || unset CGO_ENABLED
	mapfile -t dirs < <(printf %s "${of[$module]}" | sort -u)
	packages "$module" "${dirs[@]}"
done

if [ ${#failed[@]} -gt 0 ]; then
	printf 'check: failed: %s\n' "${failed[@]}" >&2
	exit 1
fi
say "nothing wrong, after $SECONDS s"
