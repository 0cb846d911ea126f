#!/usr/bin/env bash
# Runs tests. Without an argument: the tests of every module with the race detector, then the cluster tests of the tasks
# that users do every day, on one cluster. With "all": the same, and all other cluster tests.
# Usage: scripts/test.sh [all|unit|everyday|e2e|long|shares|outages]
#        scripts/test.sh cluster -run '^TestX$' [FLAG...]   one cluster test, with the existing images
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:-usual}

# plain runs tests without the race detector. It builds as scripts/build.sh does, so that nothing is compiled twice.
plain() { CGO_ENABLED=0 go test -trimpath -count=1 "$@"; }

# beside LOG COMMAND... runs a command in the background. besides waits for all these commands and prints their output.
# It fails if one of them failed.
besides_logs=() besides_ids=()
beside() {
	mkdir -p dist
	"${@:2}" >"$1" 2>&1 &
	besides_logs+=("$1") besides_ids+=($!)
	trap 'kill "${besides_ids[@]}" 2>/dev/null || true' EXIT
}

besides() {
	local failed=0 i
	for i in "${!besides_ids[@]}"; do
		wait "${besides_ids[i]}" || failed=1
		cat "${besides_logs[i]}"
	done
	besides_logs=() besides_ids=()
	trap - EXIT
	return "$failed"
}

# page makes the tests of the page required, with fakes and on a cluster. If this machine has npm and chromium, a test
# that cannot run fails. Otherwise it is skipped.
page() {
	if [ "${PAGE:-}" = none ]; then
		echo "test: PAGE=none: the page is not tried in a browser"
		return
	fi
	if ! command -v npm >/dev/null || ! command -v chromium >/dev/null; then
		echo "test: without npm and chromium (scripts/setup) the page is not tried in a browser"
		return
	fi
	scripts/ui.sh packages
	scripts/ui.sh build
	export LONGHORN_PAGE=required
}

# image_root makes tests use the commands of the image: the tests with a real NFS server, and the tests that create file
# systems.
image_root() {
	[ -z "${LONGHORN_IMAGE_ROOT:-}" ] || return 0
	local root
	if root=$(scripts/image.sh root); then
		export LONGHORN_IMAGE_ROOT=$root
	else
		echo "test: without the image's packages, the NFS server and the tools of file systems are this machine's"
	fi
}

# unit runs four packages at a time, because half of them mostly wait. Tests without the race detector run in the
# background. The histories under faults run last, alone: in them, a replica that does not answer for a tenth of a
# second has failed. Without enough processor time it would never be rebuilt. The packages that take longest are named
# first, because the packages start in this order. The background tests start before the page and the image's base are
# built: they use neither, and on a new machine these take minutes and mostly wait.
unit() {
	local failed=0
	echo "test: unit tests of the main module; those of devcluster, of the admission policies, of the alert rules, the whole search of the membership rules, which the race detector makes too slow, and what is fuzzed for a moment follow at the end"
	beside dist/devcluster.log go -C devcluster test -timeout 15m ./...
	beside dist/policy.log go -C test/policy test -timeout 15m ./...
	beside dist/alerts.log go -C test/alerts test -timeout 15m ./...
	beside dist/explore.log plain -v -run TestEveryReachableState ./dataplane/membership/explore
	FUZZTIME=5s FUZZJOBS=1 beside dist/fuzz.log scripts/fuzz.sh ./disk ./controller/node/defaults
	page
	image_root
	go test -race -p 4 -timeout 15m ./share ./dataplane/instance $(go list ./... | grep -vE '/test/(e2e|faults)$') || failed=1
	besides || failed=1
	go test -race -timeout 15m ./test/faults || failed=1
	echo "test: the unit tests ended after $SECONDS s"
	return "$failed"
}

# two_images builds the images that every cluster needs. images builds all images that the cluster tests need.
two_images() {
	scripts/image.sh
	echo "test: the image for workloads"
	bin/devcluster workload-image -o dist/workload.tar >/dev/null
}

images() {
	two_images
	echo "test: Helm, which installs on one of the clusters"
	scripts/helm.sh version --short
	echo "test: the same program as another release, with one setting more, alone in an image"
	mkdir -p dist/next
	CGO_ENABLED=0 go build -trimpath -tags next -ldflags "-s -w -X github.com/longhorn-lep/longhorn-manager/app.Version=next" -o dist/next/longhorn-manager .
	bin/devcluster image -o dist/next.tar --name localhost/longhorn-manager:next \
		--add dist/next/longhorn-manager:/usr/local/bin/longhorn-manager --entrypoint /usr/local/bin/longhorn-manager >/dev/null
}

# cluster runs cluster tests. With "required", a test fails if a part of it is missing. Without it, the test is skipped.
cluster() { LONGHORN_E2E=required plain -v -parallel 3 "$@" ./test/e2e; }

# enough_space refuses to start with too little free disk space: a full disk makes cluster tests fail one after another,
# each for a different reason. The limit is the measured space of clusters, images and builds together.
enough_space() {
	local free_gib
	free_gib=$(($(df --output=avail -B1 /var/lib | tail -n 1) >> 30))
	if [ "$free_gib" -lt "$cluster_gib" ]; then
		echo "test: /var/lib has $free_gib GiB free, and the cluster tests need $cluster_gib: free some (go clean -cache helps)" >&2
		exit 1
	fi
}
cluster_gib=15

# everyday runs the cluster tests of the tasks that users do every day, one after the other on one cluster. It runs
# failed tests once more.
everyday() {
	page
	two_images
	local before=$SECONDS failed=0
	echo "test: what users do every day, on a cluster"
	LONGHORN_E2E_GROUP=everyday cluster -timeout 40m 2>&1 | tee dist/everyday.log || failed=1
	if [ $failed -ne 0 ]; then
		failed=0
		scripts/again.sh dist/everyday.log -- scripts/test.sh cluster -timeout 40m || failed=1
	fi
	echo "test: the tests ended after $SECONDS s, of which the builds and what ran before took $before s"
	return "$failed"
}

# e2e runs all cluster tests in three parallel processes, because all of them mostly wait. The processes run the groups
# of test/e2e/groups_test.go, and take about the same time. Before them, it tests the devices of the kernel's NBD client
# in a guest, alone: a guest gets no processor time while three clusters start. The documents' commands need another
# cluster, which is too much in parallel with these: "long" runs them. e2e runs failed tests once more when all groups
# have finished.
e2e() {
	local failed=0 clusters=0
	page
	images
	local before=$SECONDS
	echo "test: devices of the kernel's NBD client, in a guest"
	LONGHORN_E2E=required plain -timeout 30m ./test/guestdevices || failed=1
	echo "test: the whole on clusters, and their failures; what runs on clusters of its own, and what changes nodes, follow at the end"
	LONGHORN_E2E_GROUP=apart beside dist/apart.log cluster -timeout 75m -parallel 4
	LONGHORN_E2E_GROUP=disruptive,schema LONGHORN_E2E_NAME=e2e-disruptive beside dist/disruptive.log cluster -timeout 75m
	LONGHORN_E2E_GROUP=everyday,ordinary cluster -timeout 75m 2>&1 | tee dist/ordinary.log || clusters=1
	besides || clusters=1
	if [ $clusters -ne 0 ]; then
		scripts/again.sh dist/{apart,disruptive,ordinary}.log -- scripts/test.sh cluster -timeout 40m || failed=1
	fi
	echo "test: the cluster tests ended after $SECONDS s, of which the builds and what ran before took $before s"
	return "$failed"
}

# older is the revision of the latest release.
older=${OLDER:-b08c98d}

# long repeats tests many times that the other modes run once. It takes an hour or two.
long() {
	echo "test: deep exploration of the membership rules, 2,000 histories under faults, 190 disks taken away, 150 successions"
	LONG=1 plain -timeout 3h -v ./dataplane/membership/explore ./test/faults ./test/mounts ./dataplane/device/holder
	echo "test: what users write by hand, what a disk may hold, and requests to the REST API, fuzzed for a minute each"
	FUZZTIME=60s FUZZJOBS=3 scripts/fuzz.sh ./disk ./controller/node/defaults ./api
	images
	scripts/older.sh "$older"
	echo "test: the documents' commands"
	cluster -timeout 40m -run '^TestTheDocumentsCommands$'
	echo "test: six rounds of each power loss, and the update of an older release under a writer"
	LONG_ROUNDS=6 cluster -timeout 3h -run 'TestPowerIsLost|TestUpdateOfAnOlderRelease'
}

# shares makes the server of a shared volume fail many times, and measures shares. It takes some hours. For its guests
# it builds a kernel, which takes some minutes the first time (LONGHORN_GUEST_KERNEL=DIRECTORY uses another kernel). By
# default, it does not run the failure kubeletstops, because pods may hang permanently after it. docs/SHARES.md
# describes the results of that failure.
shares() {
	images
	if [ -z "${LONGHORN_GUEST_KERNEL:-}" ]; then
		LONGHORN_GUEST_KERNEL=$(scripts/guestkernel.sh)
		export LONGHORN_GUEST_KERNEL
	fi
	echo "test: shared volumes whose servers fail, many of them at once, and with many small files"
	local failures=kills=30,halts=20,hangs=10,idle=10,drains=10,deaths=20,leaderdeaths=10,clientdeaths=20,cuts=20,outages=10,lonelyleaders=5,deafleaders=5,stops=20
	LONG_SHARE=${LONG_SHARE:-$failures} LONG_TOGETHER=${LONG_TOGETHER:-10} LONG_CLAIMS=${LONG_CLAIMS:-50} LONG_FILES=${LONG_FILES:-100000} \
		cluster -timeout 12h -run '^TestSharedVolume(Series|sOfOneNode|ManyClaims|Files)$'
}

# outages stops the API server, and cuts off the leader's node, for minutes. It measures how soon everything works
# again, and takes an hour.
outages() {
	images
	echo "test: the API server is away, the leader is cut off"
	LONG_OUTAGES=1 cluster -timeout 3h -run '^(TestLongOutages|TestNoTwoLeadersWrite)$'
}

case $what in
unit) unit ;;
everyday | e2e)
	enough_space
	"$what"
	;;
long) long ;;
shares) shares ;;
outages) outages ;;
cluster) LONGHORN_E2E_GROUP="" cluster "${@:2}" ;;
usual | all)
	enough_space
	# Some parts of the images are slow to build, and are built only once. This builds them now, and the clusters use them.
	if [ "$what" = all ]; then beside dist/images.log images; else beside dist/images.log two_images; fi
	unit # not "unit && …": that would switch "set -e" off inside
	if [ "$what" = all ]; then e2e; else everyday; fi
	;;
*) echo "usage: scripts/test.sh [all|unit|everyday|e2e|long|shares|outages|cluster]" >&2 && exit 2 ;;
esac
