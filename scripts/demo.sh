#!/usr/bin/env bash
# Runs the whole product on this machine: a Kubernetes cluster of three nodes, the storage manager installed with
# kubectl apply, and a pod that writes to a volume with three replicas.
# Usage: scripts/demo.sh up|down          (as root; make demo builds first)
set -euo pipefail
cd "$(dirname "$0")/.."

devcluster=$PWD/bin/devcluster
nodes=(node-1 node-2 node-3)
ns=longhorn-system

say() { echo "demo: $*"; }
kubectl() { "$devcluster" kubectl "$@"; }

# fail prints the cluster's last state, Events and logs, then the next step for the user.
fail() { # fail WHAT HINT
	set +e
	{
		echo
		echo "demo: FAILED: $1"
		if kubectl get --raw /readyz >/dev/null 2>&1; then
			echo "--- pods that are not ready"
			kubectl get pods -A -o wide --no-headers 2>&1 |
				awk '{ split($3, r, "/"); if (r[1] != r[2]) print }' | head -20
			echo "--- last events"
			kubectl get events -A --sort-by=.lastTimestamp 2>&1 | tail -15
			echo "--- volumes, engines, replicas"
			kubectl -n $ns get volumes.longhorn.io,engines.longhorn.io,replicas.longhorn.io 2>&1 | head -20
			echo "--- warnings and errors of the daemons and the CSI pods"
			local app
			for app in longhorn-manager longhorn-csi-controller longhorn-csi-plugin; do
				kubectl -n $ns logs -l app=$app --tail=100 --prefix 2>&1 |
					grep -E 'level=(warning|error|fatal)|panic|BackOff' | tail -8
			done
		fi
		echo
		echo "demo: $2"
		echo "demo: the cluster was left as it is, for looking; make demo-down removes it"
	} >&2
	exit 1
}

check() {
	[ "$(id -u)" = 0 ] || { echo "demo: run as root: a node is namespaces, mounts and loop devices" >&2; exit 1; }
	[ -x "$devcluster" ] || { echo "demo: bin/devcluster is missing; run make build" >&2; exit 1; }
}

start_cluster() {
	scripts/image.sh
	if [ ! -s dist/workload.tar ] || [ "$devcluster" -nt dist/workload.tar ]; then
		say "making the image for workloads"
		"$devcluster" workload-image -o dist/workload.tar >/dev/null
	fi
	say "starting a cluster of ${#nodes[@]} nodes"
	"$devcluster" up --nodes ${#nodes[@]} --image-tar dist/longhorn-manager.tar --image-tar dist/workload.tar ||
		fail "the cluster did not start" "do what the message above says; 'bin/devcluster status' shows what runs"
}

install() {
	say "kubectl apply -f deploy/longhorn.yaml"
	kubectl apply -f deploy/longhorn.yaml | awk '{ n++ } END { print "demo: " n " objects" }' ||
		fail "deploy/longhorn.yaml was not accepted" "see the message above; scripts/verify.sh manifests tells whether the file is up to date"
	local object
	for object in daemonset/longhorn-manager daemonset/longhorn-csi-plugin deployment/longhorn-csi-controller; do
		kubectl -n $ns rollout status "$object" --timeout=180s ||
			fail "$object is not ready" "read its log: bin/devcluster kubectl -n $ns logs $object"
	done
	say "waiting for the nodes' disks and instance managers"
	kubectl -n $ns wait --for=create "${nodes[@]/#/nodes.longhorn.io/}" --timeout=60s >/dev/null &&
		kubectl -n $ns wait --for=condition=Ready nodes.longhorn.io --all --timeout=120s ||
		fail "not all nodes are ready" "see their conditions: bin/devcluster kubectl -n $ns describe nodes.longhorn.io"
	kubectl -n $ns wait --for=jsonpath='{.status.currentState}'=running instancemanagers.longhorn.io --all --timeout=120s ||
		fail "not all instance managers run" "see bin/devcluster kubectl -n $ns describe instancemanagers.longhorn.io"
}

start_workload() {
	say "kubectl apply -f deploy/examples/pod-with-claim.yaml"
	kubectl apply -f deploy/examples/pod-with-claim.yaml
	kubectl wait --for=jsonpath='{.status.phase}'=Bound pvc/demo --timeout=120s ||
		fail "the claim got no volume" "see why: bin/devcluster kubectl describe pvc demo"
	volume=$(kubectl get pvc demo -o jsonpath='{.spec.volumeName}')
	kubectl rollout status deployment/demo --timeout=180s ||
		fail "the pod does not run" "see why: bin/devcluster kubectl describe pod -l app=demo"
	kubectl -n $ns wait --for=jsonpath='{.status.robustness}'=healthy "volumes.longhorn.io/$volume" --timeout=60s >/dev/null ||
		fail "volume $volume is not healthy" "see bin/devcluster kubectl -n $ns describe volumes.longhorn.io $volume"
}

# page forwards a port of this machine to the web page, and prints the page's address and a token.
page() {
	local address
	kubectl apply -f deploy/examples/operator.yaml >/dev/null || return
	address=$("$devcluster" forward $ns/longhorn-backend:9500) || return
	echo "     https://$address/       (the browser warns: the certificate is the cluster's own)"
	echo "     Token, valid for 12 hours:"
	kubectl -n $ns create token operator --audience longhorn-backend --duration=12h
}

show() {
	local node page other
	page=$(page) || fail "the page cannot be reached" "see the message above; 'bin/devcluster kubectl longhorn ui' opens the page, too"
	node=$(kubectl -n $ns get volumes.longhorn.io "$volume" -o jsonpath='{.status.currentNodeID}')
	other=$(printf '%s\n' "${nodes[@]}" | grep -v "^$node\$" | tail -n 1)
	echo
	kubectl longhorn status
	cat <<END

Three things to try. "alias kubectl='bin/devcluster kubectl'" shortens the commands.

  1. Open the page:
$page

  2. Switch off a node that has a replica. Wait until the volume is degraded,
     ask what is wrong, and switch the node on again:
     bin/devcluster stop-node $other
     bin/devcluster kubectl -n $ns wait --timeout=2m \\
       --for=jsonpath='{.status.robustness}'=degraded \\
       lhv/$volume
     bin/devcluster kubectl longhorn explain claim default/demo
     bin/devcluster start-node $other

  3. Delete the pod. Its Deployment starts another one, which finds the data:
     bin/devcluster kubectl delete pod -l app=demo
     bin/devcluster kubectl exec deployment/demo -- tail /data/log

Remove everything:  make demo-down
END
}

case ${1:-} in
up)
	check
	start_cluster
	install
	start_workload
	show
	say "up after $SECONDS s"
	;;
down)
	check
	"$devcluster" down
	;;
*)
	echo "usage: scripts/demo.sh up|down" >&2
	exit 2
	;;
esac
