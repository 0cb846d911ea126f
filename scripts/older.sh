#!/usr/bin/env bash
# Builds an older release from a git revision. A test updates a running installation of that release. The results are
# dist/older.tar, the image localhost/longhorn-manager:older, and dist/older.yaml, the manifest of that release.
# Usage: scripts/older.sh REVISION
set -euo pipefail
cd "$(dirname "$0")/.."
revision=$(git rev-parse --verify --short "${1:?usage: scripts/older.sh REVISION}^{commit}")

tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
git archive "$revision" | tar -x -C "$tree"
mkdir -p dist
echo "older: building revision $revision"
(
	cd "$tree"
	CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X github.com/longhorn-lep/longhorn-manager/app.Version=$revision" -o bin/longhorn-manager .
)
scripts/image.sh "$tree/bin/longhorn-manager" localhost/longhorn-manager:older dist/older.tar
sed 's#localhost/longhorn-manager:dev#localhost/longhorn-manager:older#' "$tree/deploy/longhorn.yaml" >dist/older.yaml
