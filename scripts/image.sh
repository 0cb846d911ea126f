#!/usr/bin/env bash
# Builds dist/longhorn-manager.tar: the image localhost/longhorn-manager:dev of deploy/Dockerfile, as a docker-archive
# for `ctr -n k8s.io images import`. If Docker or Podman runs, it builds the image on the Dockerfile's own base.
# Otherwise mmdebstrap builds the base from Debian packages, and buildah builds the rest. This needs root and a Debian
# mirror, but no registry.
# With ARCH=arm64 or ARCH=amd64, if that is not this machine's architecture: builds dist/longhorn-manager-$ARCH.tar. The
# base then contains Debian's packages of that architecture. Their programs run in an emulator (QEMU) during the build.
# Usage: scripts/image.sh [BINARY NAME TAR]     (BUILDER=docker|podman|buildah chooses; another binary: another image)
#        scripts/image.sh root                  (prints the directory of the base, for tests: LONGHORN_IMAGE_ROOT)
set -euo pipefail
cd "$(dirname "$0")/.."

. scripts/arch.sh
suffix= setup=scripts/setup platform=()
if [ "$arch" != "$host" ]; then
	suffix=-$arch setup="ARCH=$arch scripts/setup" platform=(--platform "linux/$arch")
fi
binary=${1:-$bin/longhorn-manager}
library=$bin/ganesha-wake.so
name=${2:-localhost/longhorn-manager:dev}
out=${3:-dist/longhorn-manager$suffix.tar}
suite=trixie
backports=$suite-backports
packages=e2fsprogs,xfsprogs,util-linux,mount,nfs-ganesha/$backports,nfs-ganesha-vfs/$backports # the Dockerfile's packages
# unneeded are parts of these packages that the used parts do not need. The Dockerfile has the same list.
unneeded='usr/share/perl usr/share/perl5 usr/lib/*/perl usr/lib/*/libperl.so* usr/lib/python3* usr/bin/python3* usr/share/python3 usr/sbin/xfs_scrub* usr/lib/*/libicu* usr/lib/*/gconv'
cache=${XDG_CACHE_HOME:-/var/cache}/longhorn-image
base=$suite-$(sha256sum <<<"$packages $unneeded" | cut -c1-12)$suffix
root=$cache/root-$base

say() { echo "image: $*" >&3; }
fail() { echo "image: $*" >&2; exit 1; }
need() { command -v "$1" >/dev/null || fail "$1 is missing; run $setup"; }

# emulator makes sure that the kernel runs programs of $arch.
emulator() {
	local handler=/proc/sys/fs/binfmt_misc/qemu-${gnu%%-*}
	[ "$arch" = "$host" ] || grep -qsx enabled "$handler" ||
		fail "this kernel runs no programs of $arch ($handler is missing); run $setup"
}

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

# store runs buildah with separate storage, so that it touches no other image.
store() {
	buildah --root "$cache/storage" --runroot "$cache/run" --storage-driver "$(cat "$cache/driver")" "$@"
}

# prepare_store finds out once which storage driver works on this machine.
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

# sources lists the package sources of $suite: the mirrors that this machine uses itself, and the backports on the first
# mirror.
sources() {
	local own uri codename first=
	own=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
	while read -r codename uri; do
		case $codename in "$own" | "$own"-security | "$own"-updates) ;; *) continue ;; esac
		echo "deb $uri $suite${codename#"$own"} main"
		[ "$codename" != "$own" ] || first=$uri
	done < <(apt-get indextargets --format '$(CODENAME) $(REPO_URI)' 'Created-By: Packages' 'Component: main' | sort -u)
	[ -n "$first" ] || fail "this machine's apt has no source of Debian ($own); run apt-get update"
	echo "deb $first $backports main"
}

# make_root installs Debian with the packages into the directory $root.
make_root() {
	local start=$SECONDS takes="about two minutes"
	[ -d "$root" ] && return
	need mmdebstrap
	emulator
	[ "$arch" = "$host" ] || takes="in an emulator, which takes ten minutes or longer"
	say "making the base from Debian packages; $takes, the first time only"
	fold -s -w 76 <<<"$suite: ${packages//,/ }" | sed 's/^/  /' >&3
	rm -rf "$root.new" "$root.tar"
	sources >"$cache/sources.list"
	mmdebstrap --quiet --architectures="$arch" --variant=essential --include="$packages" \
		--aptopt='APT::Install-Recommends "false"' \
		--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
		--dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/info/*' \
		--customize-hook="cd \"\$1\" && rm -rf $unneeded && rm -f etc/apt/sources.list" \
		"$suite" "$root.tar" - <"$cache/sources.list" >"$cache/mmdebstrap.log" 2>&1 || {
		tail -20 "$cache/mmdebstrap.log" >&2
		fail "mmdebstrap failed; it uses the places of this machine's apt sources, so see that 'apt-get update' works (log: $cache/mmdebstrap.log)"
	}
	mkdir "$root.new"
	tar -C "$root.new" -xf "$root.tar"
	rm -f "$root.tar"
	mv "$root.new" "$root"
	say "base made in $((SECONDS - start)) s"
}

# make_base imports the content of $root into the storage, as image $1.
make_base() {
	local name=$1 container
	store images -q "$name" >/dev/null 2>&1 && return
	tar -C "$root" -cf "$cache/base.tar" .
	container=$(store from --signature-policy "$cache/policy.json" scratch)
	store config --arch "$arch" "$container"
	store add --quiet "$container" "$cache/base.tar" / >/dev/null
	store commit --quiet --rm --signature-policy "$cache/policy.json" "$container" "$name" >/dev/null
	rm -f "$cache/base.tar"
}

# alone makes sure that the script runs as root, and that no other run of the script is active.
alone() {
	[ "$(id -u)" = 0 ] || fail "run as root: making an image without Docker needs mount and chown"
	mkdir -p "$cache"
	exec 9>"$cache.lock"
	flock 9
}

build_with_buildah() {
	need buildah
	alone
	emulator
	prepare_store
	make_root
	make_base "localhost/longhorn-base:$base"
	store bud --quiet --arch "$arch" --isolation chroot --pull-never --signature-policy "$cache/policy.json" \
		--build-arg "BASE=localhost/longhorn-base:$base" -t "$name" -f deploy/Dockerfile "$context" >/dev/null
	store push --quiet --signature-policy "$cache/policy.json" "$name" "docker-archive:$out.new:$name"
	store rmi --prune >/dev/null 2>&1 || true # removes the image that the new one replaced
}

exec 3>&1
if [ "$binary" = root ]; then
	exec 3>&2 # standard output contains only the directory
	alone
	make_root
	echo "$root"
	exit 0
fi
for file in "$binary" "$library"; do
	[ -s "$file" ] || fail "$file is missing; run make build${ARCH:+ ARCH=$ARCH}"
done
mkdir -p dist "$(dirname "$cache")"
builder=${BUILDER:-$(choose_builder)}
sum=$(cat <(sha256sum <"$binary") <(sha256sum <"$library") <(sha256sum <deploy/Dockerfile) <(sha256sum <"$0") <(echo "$builder$suffix") | sha256sum)
if [ -s "$out" ] && [ "$(cat "$out.sum" 2>/dev/null)" = "$sum" ]; then
	say "$out is up to date"
	exit 0
fi

start=$SECONDS
say "building $name for $arch with $builder"
context=$(mktemp -d) # contains only the copied files: the repository may be large
trap 'rm -rf "$context"' EXIT
mkdir "$context/bin"
cp "$binary" "$context/bin/longhorn-manager"
cp "$library" "$context/bin/"
rm -f "$out.new" "$out.sum"
case $builder in
docker | podman)
	"$builder" build -q "${platform[@]}" -t "$name" -f deploy/Dockerfile "$context" >/dev/null
	"$builder" save -o "$out.new" "$name"
	;;
buildah) build_with_buildah ;;
*) fail "BUILDER=$builder: must be docker, podman or buildah" ;;
esac
mv "$out.new" "$out"
echo "$sum" >"$out.sum"
say "$out ($(du -h "$out" | cut -f1)) made in $((SECONDS - start)) s"
