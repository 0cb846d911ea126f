# Scripts that build for an architecture source this file.
# host is the architecture of this machine, in the words of Go and Debian. arch is the architecture to build for: ARCH in
# the environment, or this machine's. gnu is the name of arch in GNU tools. The results for another architecture than
# this machine's have their own names.
case $(uname -m) in
x86_64) host=amd64 ;;
aarch64) host=arm64 ;;
*) host=$(uname -m) ;;
esac
arch=${ARCH:-$host}
case $arch in
amd64) gnu=x86_64-linux-gnu ;;
arm64) gnu=aarch64-linux-gnu ;;
*)
	if [ -n "${ARCH:-}" ]; then
		echo "$(basename "$0" .sh): ARCH=$ARCH: must be amd64 or arm64" >&2
		exit 2
	fi
	gnu=$arch-linux-gnu
	;;
esac
bin=bin tools= # tools is the prefix of the names of the C compiler and of objdump
if [ "$arch" != "$host" ]; then
	bin=bin/$arch tools=$gnu-
fi
