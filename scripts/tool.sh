# Scripts that need a Go program of the tools' modules source this file.
# tool NAME MODULE PACKAGE builds bin/NAME from PACKAGE, as pinned in MODULE's go.mod. It builds again only if go.sum or
# Go has changed. CGO=1 builds with cgo.
tool() {
	local sum
	sum=$(cat "$2/go.sum" <(go version) | sha256sum)
	[ -x "bin/$1" ] && [ "$(cat "bin/.$1.sum" 2>/dev/null)" = "$sum" ] && return
	echo "$(basename "$0" .sh): building bin/$1"
	mkdir -p bin
	(cd "$2" && CGO_ENABLED=${CGO:-0} go build -o "$OLDPWD/bin/$1" "$3")
	echo "$sum" >"bin/.$1.sum"
}
