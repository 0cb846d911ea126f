#!/usr/bin/env bash
# Builds bin/longhorn-manager (static, all roles, with the web page), its name as a plugin of kubectl
# (bin/kubectl-longhorn), bin/ganesha-wake.so, which is also in the image, and bin/devcluster.
# With ARCH=arm64 or ARCH=amd64, if that is not this machine's architecture: builds only longhorn-manager and
# ganesha-wake.so, into bin/$ARCH.
# Usage: scripts/build.sh [manager|devcluster]     (PAGE=none: without the page, for machines without npm)
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/arch.sh
what=${1:-all}
[ "$arch" = "$host" ] || what=manager
mkdir -p "$bin"

version=$(git describe --tags --always --dirty 2>/dev/null || echo unknown)
step() { # step NAME COMMAND...
	local name=$1 start=$SECONDS
	shift
	echo "build: $name"
	"$@"
	echo "build: $name done in $((SECONDS - start)) s"
}
# library builds the library that is preloaded into the image's NFS server. If the library needs a newer libc than the
# image has, the server does not start.
library() {
	local newest setup=scripts/setup
	[ "$arch" = "$host" ] || setup="ARCH=$arch scripts/setup"
	command -v "${tools}gcc" >/dev/null || { echo "build: ${tools}gcc is missing; run $setup" >&2; exit 1; }
	"${tools}gcc" -O2 -Wall -Wextra -Werror -shared -fPIC -o "$bin/ganesha-wake.so" share/ganesha/wake/wake.c
	newest=$("${tools}objdump" -T "$bin/ganesha-wake.so" | grep -oE 'GLIBC_[0-9.]+' | sort -uV | tail -1)
	if [ "$(printf '%s\n' "$newest" GLIBC_2.34 | sort -V | tail -1)" != GLIBC_2.34 ]; then
		echo "build: $bin/ganesha-wake.so needs $newest, and the image has an older libc" >&2
		exit 1
	fi
}

if [ "$what" != devcluster ]; then
	library
	[ "${PAGE:-}" = none ] || scripts/ui.sh
	step "$bin/longhorn-manager" env CGO_ENABLED=0 GOARCH="${ARCH:-}" scripts/gobuild.sh "$bin/longhorn-manager" -trimpath \
		-ldflags "-s -w -X github.com/longhorn-lep/longhorn-manager/app.Version=$version"
	[ "$arch" != "$host" ] || ln -sf longhorn-manager bin/kubectl-longhorn
fi
if [ "$what" != manager ]; then
	echo "build: bin/devcluster contains Kubernetes; the first time takes several minutes"
	step bin/devcluster devcluster/build.sh bin/devcluster
fi
