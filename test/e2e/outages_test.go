package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// outages is a cluster only for long runs, because they take its API server away.
var outages = &shared{install: true, options: named("-outages", cluster.Options{
	Nodes:  3,
	Images: []string{"dist/longhorn-manager.tar", "dist/workload.tar"},
})}

// TestLongOutages cuts the leader's node off for minutes, and takes the API server away for minutes. Afterwards
// everything works within seconds, and none of our processes has exited. Late writes of a volume's old generation are
// not in the volume.
func TestLongOutages(t *testing.T) {
	if os.Getenv("LONG_OUTAGES") == "" {
		t.Skip("LONG_OUTAGES is not set: a long run that gives figures")
	}
	ctx, c := outages.get(t, long)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Hour)
	t.Cleanup(cancel)
	for i, tc := range []struct {
		name string
		run  func(w *writer, ctx context.Context, t *testing.T)
	}{
		{"the API server stands still for 4 min", func(w *writer, ctx context.Context, t *testing.T) { w.apiServerIsAway(ctx, t, "freeze", 4*time.Minute) }},
		{"the API server is ended, and started after 4 min", func(w *writer, ctx context.Context, t *testing.T) { w.apiServerIsAway(ctx, t, "stop", 4*time.Minute) }},
		{"a daemon is killed while the API server is away", (*writer).daemonIsKilledMeanwhile},
		{"a machine starts while the API server is away for 5 min", (*writer).machineStartsMeanwhile},
		{"the leader's node is cut off for 3 min, and a volume moves on", func(w *writer, ctx context.Context, t *testing.T) { w.leaderIsCutOff(ctx, t, 3*time.Minute) }},
		{"the leader's node is cut off for 10 min, and a volume moves on", func(w *writer, ctx context.Context, t *testing.T) { w.leaderIsCutOff(ctx, t, 10*time.Minute) }},
		{"a volume moves on, and the API server is away when its node is back", (*writer).backWithoutAPIServer},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := startWriter(ctx, t, c, namespace(ctx, t, c, fmt.Sprintf("e2e-outage-%d", i+1)), writing)
			tc.run(w, ctx, t)
			w.finish(ctx, t)
		})
	}
}

// apiServerIsAway takes the API server away while the writer writes. The writer must not notice it.
func (w *writer) apiServerIsAway(ctx context.Context, t *testing.T, order string, d time.Duration) {
	node := w.node(ctx, t)
	a := startAbsence(ctx, t, w.c, w.namespace, node)
	began := time.Now()
	tellAPIServer(ctx, t, w.c, order)
	until(ctx, t, began.Add(d))
	tellAPIServer(ctx, t, w.c, "run")
	ended := time.Now()
	a.over(ctx, t, ended)
	w.wasNotDisturbed(ctx, t, node, began)
}

// wasNotDisturbed checks that the writer has written without a pause since began.
func (w *writer) wasNotDisturbed(ctx context.Context, t *testing.T, node string, began time.Time) {
	t.Helper()
	acks, err := w.acked(ctx, node)
	require.NoError(t, err)
	gap := longestGap(acks, began)
	t.Logf("FIGURES the longest time between two records of the writer was %v", gap.Round(time.Millisecond))
	assert.Less(t, gap, 5*time.Second)
	assert.True(t, acks[len(acks)-1].at.After(time.Now().Add(-10*time.Second)), "the writer writes no more")
}

// daemonIsKilledMeanwhile: the kubelet restarts the daemon's container. The new daemon waits for the API server and
// does not exit again.
func (w *writer) daemonIsKilledMeanwhile(ctx context.Context, t *testing.T) {
	node := w.node(ctx, t)
	a := startAbsence(ctx, t, w.c, w.namespace, node)
	pod := w.c.Must(ctx, t, "-n", types.Namespace, "get", "pods", "-l", "app=longhorn-manager", "--field-selector=spec.nodeName="+node, "-o", "jsonpath={.items[0].metadata.name}")
	a.restarts[pod]++
	began := time.Now()
	tellAPIServer(ctx, t, w.c, "freeze")
	killProcess(ctx, t, w.c, node, "daemon")
	until(ctx, t, began.Add(2*time.Minute))
	tellAPIServer(ctx, t, w.c, "run")
	a.over(ctx, t, time.Now())
	t.Logf("the daemon's log:\n%s", w.c.Must(ctx, t, "-n", types.Namespace, "logs", pod, "--tail=40"))
	w.wasNotDisturbed(ctx, t, node, began)
}

// machineStartsMeanwhile: a node without the writer is off, and is switched on while the API server is away. The time
// until its pods start afterwards depends on the kubelet, so the test does not limit it.
func (w *writer) machineStartsMeanwhile(ctx context.Context, t *testing.T) {
	node := without(w.c.Nodes(), w.node(ctx, t))[0]
	restarts := restartsOn(ctx, t, w.c, node)
	t.Cleanup(func() { startNode(t, w.c, node) })
	_, err := w.c.Devcluster(ctx, "stop-node", node)
	require.NoError(t, err)
	began := time.Now()
	tellAPIServer(ctx, t, w.c, "freeze")
	_, err = w.c.Devcluster(ctx, "start-node", node)
	require.NoError(t, err)
	until(ctx, t, began.Add(5*time.Minute))
	tellAPIServer(ctx, t, w.c, "run")
	ended := time.Now()
	w.c.Must(ctx, t, "wait", "node/"+node, "--for=condition=Ready", "--timeout=120s")
	t.Logf("FIGURES its kubelet is ready: %.1f s after the end", time.Since(ended).Seconds())
	a := startAbsence(ctx, t, w.c, w.namespace, node)
	a.rebooted = restarts
	a.over(ctx, t, ended)
}

// leaderIsCutOff cuts off the writer's node, whose daemon leads, for d. The volume moves to another node.
func (w *writer) leaderIsCutOff(ctx context.Context, t *testing.T, d time.Duration) {
	old := w.node(ctx, t)
	lead(ctx, t, w.c, old)
	a := startAbsence(ctx, t, w.c, w.namespace, old)
	m := w.moveOn(ctx, t, old)
	until(ctx, t, m.cut.Add(d))
	ended := time.Now()
	heal(t, w.c, old)
	a.over(ctx, t, ended, m.oldDeviceGone(), aim{"no process of the old pod is left", worksWithin, func(ctx context.Context) error {
		left, err := podsProcesses(ctx, w.c, old, m.pod)
		if err == nil && left != "" {
			err = errors.New(left)
		}
		return err
	}})
	m.checkOldAcks(ctx, t, m.old, m.cut, m.started)
	w.waitHealthy(ctx, t, 3*time.Minute)
}

// backWithoutAPIServer: the API server is away when the node is back. The replicas tell the old engine that its
// generation is over, and then no process waits for its device. The device is removed when the kubelet learns that the
// pod is gone.
func (w *writer) backWithoutAPIServer(ctx context.Context, t *testing.T) {
	old := w.node(ctx, t)
	a := startAbsence(ctx, t, w.c, w.namespace, old)
	m := w.moveOn(ctx, t, old)
	tellAPIServer(ctx, t, w.c, "freeze")
	until(ctx, t, m.cut.Add(2*time.Minute))
	healed := time.Now()
	_, err := w.c.Devcluster(ctx, "heal", old)
	require.NoError(t, err)
	reach(ctx, t, healed, []aim{{"no process waits for the old device", worksWithin, func(ctx context.Context) error { return noneStuck(ctx, w.c) }}})
	until(ctx, t, healed.Add(time.Minute))
	tellAPIServer(ctx, t, w.c, "run")
	ended := time.Now()
	heal(t, w.c, old) // removes its taint
	a.over(ctx, t, ended, m.oldDeviceGone())
	m.checkOldAcks(ctx, t, m.old, m.cut, m.started)
	w.waitHealthy(ctx, t, 3*time.Minute)
}

// move is a volume that moved away from a node that was cut off.
type move struct {
	*writer
	old, pod     string // the node, and the UID of the pod that wrote there
	cut, started time.Time
}

// moveOn cuts the writer's node off until the test ends or heals it. It waits until the writer writes on another node.
func (w *writer) moveOn(ctx context.Context, t *testing.T, old string) *move {
	t.Helper()
	h := follow(ctx, t, w.c, w.volume)
	was := theEngine(ctx, t, w.c, w.volume).Status.Generation
	m := &move{writer: w, old: old, cut: time.Now()}
	m.pod = w.c.Must(ctx, t, "-n", w.namespace, "get", "pods", "-l", "app=writer", "-o", "jsonpath={.items[0].metadata.uid}")
	t.Cleanup(func() { heal(t, w.c, old) })
	_, err := w.c.Devcluster(ctx, "cut", old)
	require.NoError(t, err)
	w.c.Must(ctx, t, "wait", "node/"+old, "--for=condition=Ready=Unknown", "--timeout=90s")
	w.c.Must(ctx, t, "taint", "node", old, outOfService)
	w.waitAckedOn(ctx, t, without(w.c.Nodes(), old), m.cut, 3*time.Minute)
	t.Logf("records are acknowledged elsewhere %.1f s after the node was cut off", time.Since(m.cut).Seconds())
	var ok bool
	m.started, ok = h.generationAbove(was)
	require.True(t, ok, "records were acknowledged elsewhere under the old generation %d", was)
	return m
}

// oldDeviceGone: nothing of the device that the pod had remains on the node that was cut off.
func (m *move) oldDeviceGone() aim {
	return aim{"nothing of the old device is left on " + m.old, worksWithin, func(ctx context.Context) error {
		left, err := leftoversOf(ctx, m.c, m.old, m.volume, true)
		if err == nil && left != "" {
			err = errors.New(left)
		}
		return err
	}}
}
