package e2e

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// TestNodeReturnsWithManyReplicas: a node with replicas of 60 volumes loses its power, and the volumes are written
// while it is off. When it is back, its replicas are rebuilt, never more at a time than the setting allows. Then all
// volumes are healthy, and nothing more is written to the API server.
func TestNodeReturnsWithManyReplicas(t *testing.T) {
	ctx, c := threeNodes.get(t, disruptive)
	c.DumpIfFailed(t)
	api := restOf(ctx, t, c)
	const lost, limit = "node-3", 5
	api.set(ctx, t, settings.ConcurrentReplicaRebuildPerNodeLimit, fmt.Sprint(limit))
	api.set(ctx, t, settings.RebuildingBandwidthMiBps, "4") // a rebuild takes two seconds; many could overlap
	f := startFleet(ctx, t, c, api, lost)
	f.write(ctx, t, "count=8")

	began := time.Now()
	t.Cleanup(func() { startNode(t, c, lost) })
	_, err := c.Devcluster(ctx, "stop-node", lost, "--power-loss")
	require.NoError(t, err)
	f.wait(ctx, t, longhorn.VolumeRobustnessDegraded, 2*time.Minute)
	t.Logf("all degraded after %s", time.Since(began).Round(time.Second))
	f.write(ctx, t, "count=1 seek=20")

	r := followRebuilds(ctx, t, c, lost)
	began = time.Now()
	_, err = c.Devcluster(ctx, "start-node", lost)
	require.NoError(t, err)
	f.wait(ctx, t, longhorn.VolumeRobustnessHealthy, 4*time.Minute)
	t.Logf("all healthy %s after the node's start", time.Since(began).Round(time.Second))
	began = time.Now()
	const quiet = 35 * time.Second // longer than the period of every periodic task
	cluster.Eventually(ctx, t, 2*time.Minute, "nothing is written any more", func(context.Context) error {
		if writes, _ := writesSince(t, time.Now().Add(-quiet)); len(writes) > 0 {
			return errWritten(writes)
		}
		return nil
	})
	t.Logf("nothing was written for %s, %s after all was healthy", quiet, time.Since(began).Round(time.Second))
	r.check(t, limit, len(f.volumes))
	f.checkSums(ctx, t, 3)
}

// fleet is volumes with two replicas each: one on the node that will be lost, and one on another node. Their engines
// run on the other nodes.
type fleet struct {
	c       *cluster.Cluster
	api     restAPI
	volumes []string
	engines map[string]string // the node of each engine, by volume
}

// startFleet creates and attaches the volumes. They are deleted when the test ends.
func startFleet(ctx context.Context, t *testing.T, c *cluster.Cluster, api restAPI, lost string) *fleet {
	t.Helper()
	const tag = "e2e-return"
	began := time.Now()
	others := without(nodes, lost)
	for _, node := range []string{others[0], lost} {
		api.setTags(ctx, t, node, tag)
		t.Cleanup(func() { api.setTags(context.WithoutCancel(ctx), t, node) })
	}
	f := &fleet{c: c, api: api, engines: map[string]string{}}
	t.Cleanup(func() { f.delete(t) })
	for i := range 60 {
		name := fmt.Sprintf("%s-%02d", tag, i)
		f.volumes = append(f.volumes, name)
		f.engines[name] = others[i%len(others)]
		api.do(ctx, t, http.MethodPost, "/volumes", v1.VolumeCreate{Name: name, Size: "33554432", NumberOfReplicas: 2, NodeSelector: []string{tag}}, http.StatusCreated, nil)
	}
	f.eventually(ctx, t, time.Minute, "detached", func(v longhorn.Volume) bool { return v.Status.State == longhorn.VolumeStateDetached })
	for _, name := range f.volumes {
		api.do(ctx, t, http.MethodPost, "/volumes/"+name+"?action=attach", v1.AttachInput{HostID: f.engines[name]}, http.StatusOK, nil)
	}
	f.wait(ctx, t, longhorn.VolumeRobustnessHealthy, 3*time.Minute)
	t.Logf("%d volumes were made and attached in %s", len(f.volumes), time.Since(began).Round(time.Second))
	return f
}

// eventually waits until something is true for all volumes.
func (f *fleet) eventually(ctx context.Context, t *testing.T, timeout time.Duration, what string, is func(longhorn.Volume) bool) {
	t.Helper()
	cluster.Eventually(ctx, t, timeout, "all volumes are "+what, func(ctx context.Context) error {
		list, err := f.c.Longhorn.LonghornV1beta2().Volumes(types.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		count := 0
		var others []string
		for _, v := range list.Items {
			switch _, ours := f.engines[v.Name]; {
			case ours && is(v):
				count++
			case ours:
				others = append(others, fmt.Sprintf("%s %s %s", v.Name, v.Status.State, v.Status.Robustness))
			}
		}
		if count < len(f.volumes) {
			return fmt.Errorf("%d of %d are, but not %q", count, len(f.volumes), others)
		}
		return nil
	})
}

func (f *fleet) wait(ctx context.Context, t *testing.T, robustness longhorn.VolumeRobustness, timeout time.Duration) {
	t.Helper()
	f.eventually(ctx, t, timeout, "attached and "+string(robustness), func(v longhorn.Volume) bool {
		return v.Status.State == longhorn.VolumeStateAttached && v.Status.Robustness == robustness
	})
}

// write writes random bytes to each device. where is in dd's arguments, with a block size of 1 MiB.
func (f *fleet) write(ctx context.Context, t *testing.T, where string) {
	t.Helper()
	byNode := map[string][]string{}
	for _, name := range f.volumes {
		byNode[f.engines[name]] = append(byNode[f.engines[name]], name)
	}
	for node, names := range byNode {
		f.c.MustOnNode(ctx, t, node, "bash", "-c", "set -e; for v in "+strings.Join(names, " ")+
			"; do dd if=/dev/urandom of=/dev/longhorn/$v bs=1M "+where+" oflag=direct conv=notrunc,fsync status=none; done")
	}
}

// checkSums detaches some of the volumes and compares their replicas.
func (f *fleet) checkSums(ctx context.Context, t *testing.T, count int) {
	t.Helper()
	for _, name := range f.volumes[:count] {
		f.api.do(ctx, t, http.MethodPost, "/volumes/"+name+"?action=detach", v1.DetachInput{}, http.StatusOK, nil)
	}
	for _, name := range f.volumes[:count] {
		waitVolume(ctx, t, f.c, name, ".status.state", "detached")
		checkSums(ctx, t, f.c, theVolume(ctx, t, f.c, name), replicasOf(ctx, t, f.c, name))
	}
}

func (f *fleet) delete(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	for _, name := range f.volumes {
		if _, _, err := f.api.once(ctx, http.MethodPost, "/volumes/"+name+"?action=detach", []byte(`{"forceDetach":true}`)); err != nil {
			t.Error(err)
		}
	}
	for _, name := range f.volumes {
		f.api.deleteDetached(ctx, t, name)
	}
	cluster.Eventually(ctx, t, 3*time.Minute, "all volumes are gone", func(ctx context.Context) error {
		list, err := f.c.Longhorn.LonghornV1beta2().Volumes(types.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		left := slices.DeleteFunc(list.Items, func(v longhorn.Volume) bool { return f.engines[v.Name] == "" })
		if len(left) > 0 {
			return fmt.Errorf("%d are left, such as %s, which is %s", len(left), left[0].Name, left[0].Status.State)
		}
		return nil
	})
}

// rebuilds records which replicas of a node were being rebuilt, at each change of an engine that the API server
// reported.
type rebuilds struct {
	on map[string]bool // the node's replicas

	mu    sync.Mutex
	now   map[string][]string // by engine, without engines that rebuild nothing
	most  []string            // the largest number at a time
	twice [][]string          // more than one rebuild of one engine
	seen  map[string]bool     // all replicas that were ever rebuilt
	told  []string            // a readable line for each change
	lost  error               // an error of the watch
}

// followRebuilds starts with the current state, and stops with the test.
func followRebuilds(ctx context.Context, t *testing.T, c *cluster.Cluster, node string) *rebuilds {
	t.Helper()
	api := c.Longhorn.LonghornV1beta2()
	replicas, err := api.Replicas(types.Namespace).List(ctx, metav1.ListOptions{LabelSelector: types.LabelNode + "=" + types.NodeLabel(node)})
	require.NoError(t, err)
	r := &rebuilds{on: map[string]bool{}, now: map[string][]string{}, seen: map[string]bool{}}
	for _, replica := range replicas.Items {
		r.on[replica.Name] = true
	}
	engines, err := api.Engines(types.Namespace).List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	for _, e := range engines.Items {
		r.add(&e)
	}
	w, err := api.Engines(types.Namespace).Watch(ctx, metav1.ListOptions{ResourceVersion: engines.ResourceVersion})
	require.NoError(t, err)
	var watching sync.WaitGroup
	watching.Go(func() { r.record(w) })
	t.Cleanup(func() {
		w.Stop()
		watching.Wait()
	})
	return r
}

// record handles the changes in the order in which they happened.
func (r *rebuilds) record(w watch.Interface) {
	for event := range w.ResultChan() {
		if e, ok := event.Object.(*longhorn.Engine); ok && event.Type != watch.Deleted {
			r.add(e)
			continue
		}
		r.mu.Lock()
		r.lost = fmt.Errorf("the watch told %s of %T", event.Type, event.Object)
		r.mu.Unlock()
	}
}

// add counts a replica as in rebuild from the engine's request until it is a member that serves, or until its rebuild
// has failed.
func (r *rebuilds) add(e *longhorn.Engine) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var under []string
	for name := range r.on {
		_, asked := e.Spec.ReplicaAddressMap[name]
		mode := e.Status.ReplicaModeMap[name]
		member := e.Status.Epoch != nil && slices.Contains(e.Status.Epoch.Members, name)
		if mode == longhorn.ReplicaModeWO || asked && !member && mode != longhorn.ReplicaModeERR {
			under = append(under, name)
			r.seen[name] = true
		}
	}
	was := r.now[e.Name]
	delete(r.now, e.Name)
	if len(under) > 0 {
		r.now[e.Name] = under
	}
	if len(under) > 1 {
		r.twice = append(r.twice, under)
	}
	var all []string
	for _, names := range r.now {
		all = append(all, names...)
	}
	if len(was)+len(under) > 0 {
		r.told = append(r.told, fmt.Sprintf("%s version %s, %d at a time: %s asked for %v, modes %v, rebuilds %q, then %q",
			time.Now().Format(time.StampMilli), e.ResourceVersion, len(all), e.Name, slices.Sorted(maps.Keys(e.Spec.ReplicaAddressMap)), e.Status.ReplicaModeMap, was, under))
	}
	if len(all) > len(r.most) {
		r.most = all
	}
}

// check fails the test unless exactly `all` replicas were rebuilt, never more than limit at a time, and never two of
// one volume.
func (r *rebuilds) check(t *testing.T, limit, all int) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	require.NoError(t, r.lost)
	t.Logf("%d replicas were rebuilt, at most %d at a time", len(r.seen), len(r.most))
	assert.GreaterOrEqual(t, len(r.seen), all, "replicas that were rebuilt")
	assert.Greater(t, len(r.most), 1, "too few rebuilds at a time to prove anything")
	assert.LessOrEqual(t, len(r.most), limit, "rebuilt at a time: %q", r.most)
	assert.Empty(t, r.twice, "rebuilt at a time by one engine")
	assert.Empty(t, r.now, "still rebuilt, though all is healthy")
	if t.Failed() {
		t.Logf("what the API server told of rebuilds:\n%s", strings.Join(r.told, "\n"))
	}
}
