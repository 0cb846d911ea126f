package e2e

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// nineNodes make it unlikely that a replica is on the node of the volume's user by chance.
var nineNodes = &shared{install: true, options: named("-nine", cluster.Options{
	Nodes:  9,
	Images: []string{"dist/longhorn-manager.tar", "dist/workload.tar"},
})}

// locality is the test of data locality. It also lists the volumes that must not have moved at its end.
type locality struct {
	c       *cluster.Cluster
	api     restAPI
	ns      string
	unmoved map[string][]string // by volume: its replicas with their nodes
}

// TestDataLocality contains the tests of the data locality design, in its order and with its names.
func TestDataLocality(t *testing.T) {
	ctx, c := nineNodes.get(t, apart)
	t.Cleanup(func() { assert.NoError(t, nineNodes.down()) })
	c.DumpIfFailed(t)
	l := &locality{c: c, api: restOf(ctx, t, c), ns: namespace(ctx, t, c, "e2e-locality"), unmoved: map[string][]string{}}
	for _, step := range []struct {
		name string
		run  func(context.Context, *testing.T)
	}{
		{"volume creation with dataLocality best-effort", l.createdBestEffort},
		{"volume creation with dataLocality disabled", l.createdDisabled},
		{"volume creation with dataLocality unspecified and DefaultDataLocality disabled", l.createdUnspecified("testvol3", longhorn.DataLocalityDisabled)},
		{"volume creation with dataLocality unspecified and DefaultDataLocality best-effort", l.createdUnspecified("testvol4", longhorn.DataLocalityBestEffort)},
		{"updateDataLocality from disabled to best-effort", l.updatedToBestEffort},
		{"updateDataLocality from best-effort to disabled", l.updatedToDisabled},
		{"storage class with dataLocality disabled", l.class("disabled-longhorn", "disabled", "", longhorn.DataLocalityDisabled)},
		{"storage class with dataLocality best-effort", l.class("best-effort-longhorn", "best-effort", "", longhorn.DataLocalityBestEffort)},
		{"storage class with dataLocality unspecified and DefaultDataLocality disabled", l.class("unspecified-longhorn", "", "disabled", longhorn.DataLocalityDisabled)},
		{"storage class with dataLocality unspecified and DefaultDataLocality best-effort", l.class("unspecified-longhorn-2", "", "best-effort", longhorn.DataLocalityBestEffort)},
		{"volumes created in old versions", l.ofAnOldVersion},
		{"the node cannot take a replica", l.noPlace},
	} {
		if !t.Run(step.name, func(t *testing.T) { step.run(ctx, t) }) {
			return
		}
	}
	for volume, was := range l.unmoved {
		assert.Equal(t, was, placesOf(ctx, t, c, volume), "replicas of %s have moved", volume)
	}
}

func (l *locality) createdBestEffort(ctx context.Context, t *testing.T) {
	l.create(ctx, t, v1.VolumeCreate{Name: "testvol", NumberOfReplicas: 2, DataLocality: "best-effort"})
	l.waitLocal(ctx, t, "testvol", l.attachElsewhere(ctx, t, "testvol"), 2)
}

func (l *locality) createdDisabled(ctx context.Context, t *testing.T) {
	l.create(ctx, t, v1.VolumeCreate{Name: "testvol2", NumberOfReplicas: 2, DataLocality: "disabled"})
	was := placesOf(ctx, t, l.c, "testvol2")
	l.attachElsewhere(ctx, t, "testvol2")
	waitHealthy(ctx, t, l.c, "testvol2", time.Minute)
	assert.Equal(t, was, placesOf(ctx, t, l.c, "testvol2"))
}

func (l *locality) createdUnspecified(volume string, setting longhorn.DataLocality) func(context.Context, *testing.T) {
	return func(ctx context.Context, t *testing.T) {
		l.api.set(ctx, t, settings.DefaultDataLocality, string(setting))
		l.create(ctx, t, v1.VolumeCreate{Name: volume, NumberOfReplicas: 2})
		assert.Equal(t, setting, theVolume(ctx, t, l.c, volume).Spec.DataLocality)
		node := l.attachElsewhere(ctx, t, volume)
		if setting == longhorn.DataLocalityBestEffort {
			l.waitLocal(ctx, t, volume, node, 2)
			return
		}
		waitHealthy(ctx, t, l.c, volume, time.Minute)
		l.unmoved[volume] = placesOf(ctx, t, l.c, volume)
	}
}

func (l *locality) updatedToBestEffort(ctx context.Context, t *testing.T) {
	node := theVolume(ctx, t, l.c, "testvol2").Status.CurrentNodeID
	l.act(ctx, t, "testvol2", "updateDataLocality", v1.UpdateDataLocalityInput{DataLocality: "best-effort"})
	l.waitLocal(ctx, t, "testvol2", node, 2)
}

// updatedToDisabled: after the local replica is removed, another replica replaces it wherever there is room. The others
// stay.
func (l *locality) updatedToDisabled(ctx context.Context, t *testing.T) {
	const volume = "testvol2"
	node := theVolume(ctx, t, l.c, volume).Status.CurrentNodeID
	l.act(ctx, t, volume, "updateDataLocality", v1.UpdateDataLocalityInput{DataLocality: "disabled"})
	v := l.act(ctx, t, volume, "updateReplicaCount", v1.UpdateReplicaCountInput{ReplicaCount: 3})
	assert.Equal(t, "degraded", v.Robustness, "three are asked for, and there are two")
	l.waitReplicas(ctx, t, volume, 3)
	var local string
	var others []string
	for _, r := range replicasOf(ctx, t, l.c, volume) {
		if r.Spec.NodeID == node {
			local = r.Name
			continue
		}
		others = append(others, r.Name)
	}
	require.NotEmpty(t, local)
	v = l.act(ctx, t, volume, "replicaRemove", v1.ReplicaRemoveInput{Name: local})
	assert.Equal(t, "degraded", v.Robustness)
	l.waitReplicas(ctx, t, volume, 3)
	for _, name := range others {
		assert.True(t, slices.ContainsFunc(replicasOf(ctx, t, l.c, volume), func(r longhorn.Replica) bool { return r.Name == name }), "replica %s was given up", name)
	}
	l.unmoved[volume] = placesOf(ctx, t, l.c, volume)
}

// class creates a volume with one replica by a StorageClass. A pod uses it on a node without a replica.
func (l *locality) class(name, parameter, setting string, want longhorn.DataLocality) func(context.Context, *testing.T) {
	return func(ctx context.Context, t *testing.T) {
		if setting != "" {
			l.api.set(ctx, t, settings.DefaultDataLocality, setting)
		}
		parameters := `{numberOfReplicas: "1", staleReplicaTimeout: "2880", fromBackup: ""}`
		if parameter != "" {
			parameters = fmt.Sprintf(`{numberOfReplicas: "1", dataLocality: %q, staleReplicaTimeout: "2880", fromBackup: ""}`, parameter)
		}
		class(ctx, t, l.c, name, parameters)
		volume := claimOf(ctx, t, l.c, l.ns, name, "64Mi", name)
		var was []string
		if want == longhorn.DataLocalityDisabled {
			was = l.placed(ctx, t, volume, 1)
		} else {
			assert.Empty(t, placesOf(ctx, t, l.c, volume), "the only replica is placed where the volume is attached first")
		}
		node := l.nodeWithout(ctx, t, volume)
		startPodOn(ctx, t, l.c, node, l.ns, name, name, idle)
		l.c.Must(ctx, t, "-n", l.ns, "wait", "--for=condition=Ready", "pod/"+name, "--timeout=180s")
		sum := writeFile(ctx, t, l.c, l.ns, name, "/data/file", 8)
		assert.Equal(t, want, theVolume(ctx, t, l.c, volume).Spec.DataLocality)
		if want == longhorn.DataLocalityDisabled {
			waitHealthy(ctx, t, l.c, volume, time.Minute)
			l.unmoved[volume] = was
			return
		}
		l.waitLocal(ctx, t, volume, node, 1)
		assert.Equal(t, sum, sumInPod(ctx, t, l.c, l.ns, name, "/data/file"))
	}
}

// ofAnOldVersion: a volume without the field counts as disabled, whatever the setting says.
func (l *locality) ofAnOldVersion(ctx context.Context, t *testing.T) {
	const volume = "testvol3"
	l.api.set(ctx, t, settings.DefaultDataLocality, "best-effort")
	l.act(ctx, t, volume, "detach", v1.DetachInput{})
	waitVolume(ctx, t, l.c, volume, ".status.state", "detached")
	l.c.Must(ctx, t, "-n", types.Namespace, "patch", "volumes.longhorn.io", volume, "--type=json", "-p", `[{"op": "remove", "path": "/spec/dataLocality"}]`)
	was := placesOf(ctx, t, l.c, volume)
	l.attachElsewhere(ctx, t, volume)
	waitHealthy(ctx, t, l.c, volume, time.Minute)
	assert.Empty(t, theVolume(ctx, t, l.c, volume).Spec.DataLocality)
	l.unmoved[volume] = was
}

// noPlace: the volume is used without a local replica, and says why. The replica is created as soon as it can be
// placed.
func (l *locality) noPlace(ctx context.Context, t *testing.T) {
	const volume = "testvol5"
	l.create(ctx, t, v1.VolumeCreate{Name: volume, NumberOfReplicas: 2, DataLocality: "best-effort"})
	node := l.nodeWithout(ctx, t, volume)
	allow := func(ctx context.Context, allowed bool) {
		l.c.Must(ctx, t, "-n", types.Namespace, "patch", "nodes.longhorn.io", node, "--type=merge", "-p", fmt.Sprintf(`{"spec": {"allowScheduling": %t}}`, allowed))
	}
	t.Cleanup(func() { allow(context.WithoutCancel(ctx), true) })
	allow(ctx, false)
	l.act(ctx, t, volume, "attach", v1.AttachInput{HostID: node})
	waitHealthy(ctx, t, l.c, volume, time.Minute)
	cluster.Eventually(ctx, t, 30*time.Second, "the volume says why there is no local replica", func(ctx context.Context) error {
		scheduled := types.FindCondition(theVolume(ctx, t, l.c, volume).Status.Conditions, types.ConditionScheduled)
		if scheduled.Reason != types.ReasonLocalReplicaSchedulingFailure {
			return fmt.Errorf("its condition is %+v", scheduled)
		}
		return nil
	})
	waitEvent(ctx, t, l.c, types.Namespace, "Volume", volume, types.ReasonLocalReplicaSchedulingFailure, node)
	allow(ctx, true)
	l.waitLocal(ctx, t, volume, node, 2)
	cluster.Eventually(ctx, t, 30*time.Second, "the condition is true again", func(ctx context.Context) error {
		if !types.IsConditionTrue(theVolume(ctx, t, l.c, volume).Status.Conditions, types.ConditionScheduled) {
			return fmt.Errorf("it is not")
		}
		return nil
	})
}

// create creates a volume of 64 MiB and waits until it can be attached.
func (l *locality) create(ctx context.Context, t *testing.T, v v1.VolumeCreate) {
	t.Helper()
	v.Size = "64Mi"
	l.api.do(ctx, t, http.MethodPost, "/volumes", v, http.StatusCreated, nil)
	waitVolume(ctx, t, l.c, v.Name, ".status.state", "detached")
	l.placed(ctx, t, v.Name, v.NumberOfReplicas)
}

// placed waits until this many replicas have a place, and returns the places.
func (l *locality) placed(ctx context.Context, t *testing.T, volume string, count int) (places []string) {
	t.Helper()
	cluster.Eventually(ctx, t, 30*time.Second, "the replicas of "+volume+" have a place", func(ctx context.Context) error {
		if places = placesOf(ctx, t, l.c, volume); len(places) != count {
			return fmt.Errorf("there are %v", places)
		}
		return nil
	})
	return places
}

func (l *locality) act(ctx context.Context, t *testing.T, volume, action string, input any) (v v1.Volume) {
	t.Helper()
	l.api.do(ctx, t, http.MethodPost, "/volumes/"+volume+"?action="+action, input, http.StatusOK, &v)
	return v
}

// attachElsewhere attaches a volume to a node that has no replica of it.
func (l *locality) attachElsewhere(ctx context.Context, t *testing.T, volume string) (node string) {
	t.Helper()
	node = l.nodeWithout(ctx, t, volume)
	l.act(ctx, t, volume, "attach", v1.AttachInput{HostID: node})
	return node
}

func (l *locality) nodeWithout(ctx context.Context, t *testing.T, volume string) string {
	t.Helper()
	replicas := replicasOf(ctx, t, l.c, volume)
	i := slices.IndexFunc(l.c.Nodes(), func(node string) bool {
		return !slices.ContainsFunc(replicas, func(r longhorn.Replica) bool { return r.Spec.NodeID == node })
	})
	require.GreaterOrEqual(t, i, 0, "every node has a replica of %s", volume)
	return l.c.Nodes()[i]
}

// waitLocal waits until the volume is healthy and has at most the requested number of replicas, one of them on the node.
func (l *locality) waitLocal(ctx context.Context, t *testing.T, volume, node string, count int) {
	t.Helper()
	l.wait(ctx, t, volume, fmt.Sprintf("has %d replicas, one on %s", count, node), func(replicas []longhorn.Replica) bool {
		return len(replicas) == count && slices.ContainsFunc(replicas, func(r longhorn.Replica) bool { return r.Spec.NodeID == node })
	})
}

func (l *locality) waitReplicas(ctx context.Context, t *testing.T, volume string, count int) {
	t.Helper()
	l.wait(ctx, t, volume, fmt.Sprintf("has %d replicas", count), func(replicas []longhorn.Replica) bool { return len(replicas) == count })
}

func (l *locality) wait(ctx context.Context, t *testing.T, volume, what string, is func([]longhorn.Replica) bool) {
	t.Helper()
	cluster.Eventually(ctx, t, 2*time.Minute, volume+" is healthy and "+what, func(ctx context.Context) error {
		v, e, replicas := theVolume(ctx, t, l.c, volume), theEngine(ctx, t, l.c, volume), replicasOf(ctx, t, l.c, volume)
		for _, r := range replicas {
			if r.DeletionTimestamp != nil || e.Status.ReplicaModeMap[r.Name] != longhorn.ReplicaModeRW {
				return fmt.Errorf("replica %s on %s is %q", r.Name, r.Spec.NodeID, e.Status.ReplicaModeMap[r.Name])
			}
		}
		if v.Status.Robustness != longhorn.VolumeRobustnessHealthy || !is(replicas) {
			return fmt.Errorf("it is %s, its replicas are %v, its conditions %+v", v.Status.Robustness, placesOf(ctx, t, l.c, volume), v.Status.Conditions)
		}
		return nil
	})
}

// placesOf lists a volume's replicas with their nodes, sorted.
func placesOf(ctx context.Context, t *testing.T, c *cluster.Cluster, volume string) []string {
	t.Helper()
	var places []string
	for _, r := range replicasOf(ctx, t, c, volume) {
		if r.Spec.NodeID != "" {
			places = append(places, r.Name+" on "+r.Spec.NodeID)
		}
	}
	slices.Sort(places)
	return places
}
