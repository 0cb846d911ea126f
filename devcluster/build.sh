#!/bin/sh
# Builds devcluster to the file given, with Kubernetes' version stamped in as
# its own release builds do. The first build takes minutes, later ones seconds.
set -eu
out=${1:?"usage: build.sh OUTPUT"}
case $out in /*) ;; *) out=$PWD/$out ;; esac
cd "$(dirname "$0")"
version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
minor=${version#v1.}
minor=${minor%%.*}
p=k8s.io/component-base/version
exec ../scripts/gobuild.sh "$out" -ldflags "-s -w -X $p.gitVersion=$version -X $p.gitMajor=1 -X $p.gitMinor=$minor -X $p.gitTreeState=clean"
