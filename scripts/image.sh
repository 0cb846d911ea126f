#!/usr/bin/env bash
# Makes dist/longhorn-manager.tar, the image localhost/longhorn-manager:dev of
# deploy/Dockerfile, as a docker-archive that `ctr -n k8s.io images import` takes.
# A running Docker or Podman builds it on the Dockerfile's own base. Without one, the
# base is made of Debian packages with mmdebstrap and the rest with buildah: this
# needs root and a Debian mirror, but no registry.
# Usage: scripts/image.sh [BINARY NAME TAR]     (BUILDER=docker|podman|buildah chooses; another binary makes another image)
set -euo pipefail
cd "$(dirname "$0")/.."

binary=${1:-bin/longhorn-manager}
name=${2:-localhost/longhorn-manager:dev}
out=${3:-dist/longhorn-manager.tar}
suite=bookworm
packages=e2fsprogs,xfsprogs,util-linux,mount,nfs-ganesha,nfs-ganesha-vfs # those of the Dockerfile
# What these packages bring and nothing of them that is used here needs; the Dockerfile's list, too.
unneeded='usr/share/perl usr/share/perl5 usr/lib/*/perl usr/lib/*/libperl.so* usr/lib/python3* usr/bin/python3* usr/share/python3 usr/sbin/xfs_scrub* usr/lib/*/libicu* usr/lib/*/gconv'
cache=${XDG_CACHE_HOME:-/var/cache}/longhorn-image

say() { echo "image: $*"; }
fail() { echo "image: $*" >&2; exit 1; }
need() { command -v "$1" >/dev/null || fail "$1 is missing; run scripts/setup"; }

choose_builder() {
	local engine
	for engine in docker podman; do
		if command -v "$engine" >/dev/null && timeout 10 "$engine" info >/dev/null 2>&1; then
			echo "$engine"
			return
		fi
	done
	echo buildah
}

# store runs buildah on a storage of its own, so that no other image is touched.
store() {
	buildah --root "$cache/storage" --runroot "$cache/run" --storage-driver "$(cat "$cache/driver")" "$@"
}

# prepare_store finds out once which storage driver works here.
prepare_store() {
	mkdir -p "$cache"
	echo '{"default":[{"type":"insecureAcceptAnything"}]}' >"$cache/policy.json"
	[ -s "$cache/driver" ] && return
	echo overlay >"$cache/driver"
	if ! store images >/dev/null 2>&1; then
		rm -rf "$cache/storage" "$cache/run"
		echo vfs >"$cache/driver"
	fi
	say "buildah keeps its layers in $cache ($(cat "$cache/driver"))"
}

# make_base puts Debian with the packages into the storage, as image $1.
make_base() {
	local base=$1 start=$SECONDS tar=$cache/base.new.tar container
	store images -q "$base" >/dev/null 2>&1 && return
	need mmdebstrap
	say "making the base from Debian packages ($suite, $packages); about a minute, the first time only"
	mmdebstrap --quiet --variant=essential --include="$packages" \
		--aptopt='APT::Install-Recommends "false"' \
		--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
		--dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/info/*' \
		--customize-hook="cd \"\$1\" && rm -rf $unneeded" \
		"$suite" "$tar" >"$cache/mmdebstrap.log" 2>&1 || {
		tail -20 "$cache/mmdebstrap.log" >&2
		fail "mmdebstrap failed; it uses this machine's apt sources, so see that 'apt-get update' works (log: $cache/mmdebstrap.log)"
	}
	container=$(store from --signature-policy "$cache/policy.json" scratch)
	store add --quiet "$container" "$tar" / >/dev/null
	store commit --quiet --rm --signature-policy "$cache/policy.json" "$container" "$base" >/dev/null
	rm -f "$tar"
	say "base made in $((SECONDS - start)) s"
}

build_with_buildah() {
	[ "$(id -u)" = 0 ] || fail "run as root: making an image without Docker needs mount and chown"
	need buildah
	exec 9>"$cache.lock"
	flock 9
	prepare_store
	local base
	base=localhost/longhorn-base:$suite-$(sha256sum <<<"$packages $unneeded" | cut -c1-12)
	make_base "$base"
	store bud --quiet --isolation chroot --pull-never --signature-policy "$cache/policy.json" \
		--build-arg "BASE=$base" -t "$name" -f deploy/Dockerfile "$context" >/dev/null
	store push --quiet --signature-policy "$cache/policy.json" "$name" "docker-archive:$out.new:$name"
	store rmi --prune >/dev/null 2>&1 || true # the image that the new one replaced
}

[ -x "$binary" ] || fail "$binary is missing; run make build"
[ -s bin/ganesha-wake.so ] || fail "bin/ganesha-wake.so is missing; run make build"
mkdir -p dist "$(dirname "$cache")"
builder=${BUILDER:-$(choose_builder)}
sum=$(cat <(sha256sum <"$binary") <(sha256sum <bin/ganesha-wake.so) <(sha256sum <deploy/Dockerfile) <(sha256sum <"$0") <(echo "$builder") | sha256sum)
if [ -s "$out" ] && [ "$(cat "$out.sum" 2>/dev/null)" = "$sum" ]; then
	say "$out is up to date"
	exit 0
fi

start=$SECONDS
say "building $name with $builder"
context=$(mktemp -d) # nothing but what is copied: the repository may be large
trap 'rm -rf "$context"' EXIT
mkdir "$context/bin"
cp "$binary" "$context/bin/longhorn-manager"
cp bin/ganesha-wake.so "$context/bin/"
rm -f "$out.new" "$out.sum"
case $builder in
docker | podman)
	"$builder" build -q -t "$name" -f deploy/Dockerfile "$context" >/dev/null
	"$builder" save -o "$out.new" "$name"
	;;
buildah) build_with_buildah ;;
*) fail "BUILDER=$builder: must be docker, podman or buildah" ;;
esac
mv "$out.new" "$out"
echo "$sum" >"$out.sum"
say "$out ($(du -h "$out" | cut -f1)) made in $((SECONDS - start)) s"
