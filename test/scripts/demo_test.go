package scripts

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// clusterOfDemo is a fake bin/devcluster. A command fails if it contains $FAILS. The claim's volume is pvc-1, on node-3.
const clusterOfDemo = `#!/usr/bin/env bash
echo "$*" >>"$FAKES/ran"
[ -z "$FAILS" ] || [[ "$*" != *"$FAILS"* ]] || exit 1
[ -z "$UNREACHABLE" ] || [[ "$*" != *readyz* ]] || exit 1
case "$*" in
"kubectl apply -f deploy/longhorn.yaml") printf 'a created\nb created\nc created\n' ;;
*"get pvc demo"*) echo pvc-1 ;;
*"get volumes.longhorn.io pvc-1"*) echo node-3 ;;
*"get pods -A"*) printf 'ns ready 1/1 Running\nns waiting 0/1 Pending\n' ;;
*"logs -l app="*) printf 'level=info msg=fine\nlevel=error msg=broken\n' ;;
"forward "*) echo 127.0.0.1:40001 ;;
*"create token operator"*) echo a-token ;;
"kubectl longhorn status") echo "3 nodes, 1 volume" ;;
esac
`

func TestTheDemo(t *testing.T) {
	const left = "the cluster was left as it is"
	for name, tc := range map[string]struct {
		args        []string
		user        string // its number; default: root
		before      func(repository)
		fails       string // a part of the command that fails
		unreachable bool
		exit        int
		says, not   []string
		ran, ranNot []string // parts of commands
	}{
		"no argument → how it is used":     {exit: 2, says: []string{"usage: scripts/demo.sh up|down"}},
		"an unknown word → how it is used": {args: []string{"start"}, exit: 2, says: []string{"usage: scripts/demo.sh up|down"}},
		"not root → it says why": {
			args: []string{"up"}, user: "1000", exit: 1, says: []string{"demo: run as root"}, ranNot: []string{"up"},
		},
		"down, not root → nothing is removed": {args: []string{"down"}, user: "1000", exit: 1, says: []string{"demo: run as root"}, ranNot: []string{"down"}},
		"nothing is built → it says what to run": {
			args: []string{"up"}, before: func(r repository) { r.git("rm", "-q", "bin/devcluster") }, exit: 1,
			says: []string{"bin/devcluster is missing; run make build"},
		},
		"up → what to try, on the nodes of the volume": {
			args: []string{"up"},
			says: []string{
				"demo: starting a cluster of 3 nodes", "demo: 3 objects", "3 nodes, 1 volume", "https://127.0.0.1:40001/", "a-token",
				"bin/devcluster stop-node node-2\n     bin/devcluster kubectl -n longhorn-system wait --timeout=2m \\\n" +
					"       --for=jsonpath='{.status.robustness}'=degraded \\\n       lhv/pvc-1\n     bin/devcluster kubectl longhorn explain claim default/demo\n", "bin/devcluster start-node node-2", "make demo-down", "demo: up after ",
			},
			not: []string{"FAILED", "making the image for workloads"},
			ran: []string{"up --nodes 3 --image-tar dist/longhorn-manager.tar --image-tar dist/workload.tar", "wait --for=create nodes.longhorn.io/node-1 nodes.longhorn.io/node-2 nodes.longhorn.io/node-3"},
		},
		"no image for workloads → it is built": {
			args: []string{"up"}, before: func(r repository) { r.write("dist/workload.tar", "") },
			says: []string{"making the image for workloads"}, ran: []string{"workload-image -o dist/workload.tar"},
		},
		"the cluster does not start, and does not respond → no state, and the next step": {
			args: []string{"up"}, fails: "up --nodes", unreachable: true, exit: 1,
			says: []string{"demo: FAILED: the cluster did not start", "'bin/devcluster status' shows what runs", left},
			not:  []string{"--- pods"}, ranNot: []string{"down", "kubectl apply"},
		},
		"the manifest is refused → the next step, and the state": {
			args: []string{"up"}, fails: "apply -f deploy/longhorn.yaml", exit: 1,
			says:   []string{"FAILED: deploy/longhorn.yaml was not accepted", "scripts/verify.sh manifests", "--- pods that are not ready\nns waiting 0/1 Pending\n---", "level=error msg=broken", left},
			not:    []string{"ns ready 1/1", "msg=fine"},
			ranNot: []string{"rollout", "down"},
		},
		"a daemon is not ready → its log is named": {
			args: []string{"up"}, fails: "rollout status daemonset/longhorn-csi-plugin", exit: 1,
			says: []string{"FAILED: daemonset/longhorn-csi-plugin is not ready", "kubectl -n longhorn-system logs daemonset/longhorn-csi-plugin", left},
		},
		"a node is not ready → its conditions are named": {
			args: []string{"up"}, fails: "condition=Ready nodes.longhorn.io", exit: 1, says: []string{"FAILED: not all nodes are ready", left},
		},
		"an instance manager does not run": {
			args: []string{"up"}, fails: "instancemanagers.longhorn.io --all", exit: 1, says: []string{"FAILED: not all instance managers run", left},
		},
		"the claim gets no volume": {
			args: []string{"up"}, fails: "=Bound pvc/demo", exit: 1, says: []string{"FAILED: the claim got no volume", "describe pvc demo", left},
		},
		"the pod does not run": {
			args: []string{"up"}, fails: "rollout status deployment/demo", exit: 1, says: []string{"FAILED: the pod does not run", left},
		},
		"the volume is not healthy → it is named": {
			args: []string{"up"}, fails: "=healthy", exit: 1, says: []string{"FAILED: volume pvc-1 is not healthy", "describe volumes.longhorn.io pvc-1", left},
		},
		"the page cannot be forwarded": {
			args: []string{"up"}, fails: "forward ", exit: 1, says: []string{"FAILED: the page cannot be reached", left}, not: []string{"Three things to try"},
		},
		"down → the cluster is removed": {args: []string{"down"}, ran: []string{"down"}, ranNot: []string{"kubectl"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRepository(t, []string{"demo.sh"}, map[string]string{
				"bin/devcluster": clusterOfDemo, "scripts/image.sh": "#!/bin/sh\n", "dist/workload.tar": "an image",
			}, map[string]string{"id": "echo ${USER_NUMBER:-0}"})
			r.env = append(r.env, "FAILS="+tc.fails, "USER_NUMBER="+tc.user, "UNREACHABLE=")
			if tc.unreachable {
				r.env = append(r.env, "UNREACHABLE=yes")
			}
			r.newer("dist/workload.tar")
			if tc.before != nil {
				tc.before(r)
			}
			out, err := r.command("scripts/demo.sh", tc.args...)
			assert.Equal(t, tc.exit, exitCode(t, err), "%s", out)
			for _, text := range tc.says {
				assert.Contains(t, out, text)
			}
			for _, text := range tc.not {
				assert.NotContains(t, out, text)
			}
			ran := "\n" + strings.Join(r.fake("ran"), "\n")
			for _, text := range tc.ran {
				assert.Contains(t, ran, text)
			}
			for _, text := range tc.ranNot {
				assert.NotContains(t, ran, "\n"+text)
			}
		})
	}
}

// newer makes a file newer than all others.
func (r repository) newer(name string) {
	r.t.Helper()
	now, err := os.Stat(filepath.Join(r.dir, "bin/devcluster"))
	require.NoError(r.t, err)
	later := now.ModTime().Add(time.Minute)
	require.NoError(r.t, os.Chtimes(filepath.Join(r.dir, name), later, later))
}
