#!/usr/bin/env bash
# Creates all generated code: deepcopy, clientset, listers, informers, CRDs, gRPC stubs. Nothing else writes those
# files. It may be run from anywhere, and works on its own tree.
set -euo pipefail
cd "$(dirname "$0")/.."

command -v protoc >/dev/null || { echo "generate: protoc is missing; run scripts/setup (Debian package protobuf-compiler)" >&2; exit 1; }
bin=${TOOLS_BIN:-$PWD/bin}
mkdir -p "$bin"
(cd tools && go build -o "$bin/" tool)

module=github.com/longhorn-lep/longhorn-manager
apis=$module/k8s/apis/longhorn/v1beta2
client=k8s/client
header=scripts/generated-header.txt

rm -rf "$client" k8s/crds
"$bin/deepcopy-gen" --output-file zz_generated.deepcopy.go --go-header-file "$header" "./k8s/apis/longhorn/v1beta2"
"$bin/client-gen" --clientset-name versioned --input-base "" --input "$apis" --go-header-file "$header" \
	--output-dir "$client/clientset" --output-pkg "$module/$client/clientset"
"$bin/lister-gen" --go-header-file "$header" \
	--output-dir "$client/listers" --output-pkg "$module/$client/listers" "$apis"
"$bin/informer-gen" --go-header-file "$header" \
	--versioned-clientset-package "$module/$client/clientset/versioned" --listers-package "$module/$client/listers" \
	--output-dir "$client/informers" --output-pkg "$module/$client/informers" "$apis"
"$bin/controller-gen" crd:allowDangerousTypes=false paths=./k8s/apis/... output:crd:dir=k8s/crds
PATH="$bin:$PATH" protoc --go_out=. --go_opt=paths=source_relative --go-grpc_out=. --go-grpc_opt=paths=source_relative \
	dataplane/instance/proto/instance.proto share/proto/share.proto
