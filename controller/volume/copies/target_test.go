package copies

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/scheduler"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// drawServed creates a served volume with up to six replicas in a random mixture of states.
func drawServed(t *rapid.T) Facts {
	states := []option{
		member, member, member,
		once(0), once(time.Hour), once(2880 * time.Minute), fresh,
		all(once(long), asked, tried, shows(longhorn.ReplicaModeWO)),
		all(once(long), asked, tried, shows(longhorn.ReplicaModeERR)),
		all(fresh, asked), all(member, shows(longhorn.ReplicaModeERR)), all(member, shows(longhorn.ReplicaModeWO)),
		all(member, unasked), all(member, unnoted),
	}
	circumstances := []option{
		fresh, fresh, fresh, fresh, away, nodeGone, nodeLeft, evicted, beingDeleted, diskless,
		onNode("a"), retried(7), broken(types.ReasonDataMissing), replaced,
	}
	var copies []option
	for range rapid.IntRange(1, 6).Draw(t, "copies") {
		copies = append(copies, all(rapid.SampledFrom(states).Draw(t, "state"), rapid.SampledFrom(circumstances).Draw(t, "circumstance")))
	}
	in := degradedFor(time.Hour, served(rapid.IntRange(1, 4).Draw(t, "asked for"), copies...))
	if node := rapid.SampledFrom([]string{"", "", "a", "b", "e"}).Draw(t, "used on"); node != "" {
		in = usedOn(node, in)
	}
	if rapid.IntRange(0, 4).Draw(t, "strict") == 0 {
		in.Volume.Spec.DataLocality = longhorn.DataLocalityStrictLocal
	}
	in.Nodes[in.Engine.Spec.NodeID] = NodeFact{} // it serves, so its node answers
	in.RebuildLimit = rapid.SampledFrom([]int{0, 1, 5}).Draw(t, "limit")
	return in
}

// In every state, the dropped replicas leave enough good ones, or as many as exist.
func TestTargetLeavesEnoughGoodCopies(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawServed(t)
		c, target := StateOf(in), targetFor(in)
		left := c.count(func(v View) bool { return v.IsHealthy() && target.Copies[v.Name].Fate != fateDrop })
		require.GreaterOrEqual(t, left, min(c.Healthy(), in.Volume.Spec.NumberOfReplicas), "good copies of %d are left, %d are asked for: %v", c.Healthy(), in.Volume.Spec.NumberOfReplicas, target.Copies)
		for _, v := range c.List {
			d := target.Copies[v.Name]
			if v.member && !v.IsHealthy() && v.DeletionTimestamp == nil && !v.gone {
				require.Equal(t, fateKeep, d.Fate, "member %s may alone have an acknowledged write", v.Name)
			}
			if v.member && c.Healthy() == 0 {
				require.Equal(t, fateKeep, d.Fate, "member %s is dropped though none is good", v.Name)
			}
		}
	})
}

// In a step, the engine never excludes a good member unless there is another one. It excludes at most one at a time.
// The step deletes only replicas that the recorded epoch lacks.
func TestStepKeepsTheLastGoodCopy(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawServed(t)
		p := plan(in)
		c, e := StateOf(in), in.Engine
		if p.UpdateEngine != nil {
			left, serving := 0, 0
			for _, v := range c.List {
				_, stays := p.UpdateEngine.Spec.ReplicaAddressMap[v.Name]
				if v.member && v.asked && !stays {
					left++
				}
				if v.IsHealthy() && (stays || v.Status.IP == "") {
					serving++
				}
			}
			require.LessOrEqual(t, left, 1, "%d stay: %v", c.Healthy(), p.UpdateEngine.Spec.ReplicaAddressMap)
			if c.Healthy() > 0 {
				require.NotZero(t, serving)
			}
		}
		if p.Surplus == nil {
			return
		}
		name := p.Surplus.Replica.Name
		require.NotContains(t, e.Status.Epoch.Members, name)
		require.Empty(t, e.Spec.ReplicaAddressMap[name], "which the epoch or the engine still has")
		require.True(t, slices.ContainsFunc(c.List, func(v View) bool { return v.Name != name && v.IsHealthy() && v.Spec.LastHealthyAt != "" }), "%s is given up without another that was noted to be good", name)
		require.Nil(t, p.UpdateEngine, "%s is given up while other things change", name)
		require.LessOrEqual(t, len(p.UpdateReplicas)+len(p.CreateReplicas), 0, "%s is given up while other things change", name)
	})
}

// obey carries out a plan, like a data plane in which nothing fails, in one second. It returns whether there was
// anything to do.
func obey(t *testing.T, in *Facts) bool {
	t.Helper()
	p := plan(*in)
	in.Now = in.Now.Add(time.Second)
	e := in.Engine
	busy := p.UpdateEngine != nil || len(p.UpdateReplicas)+len(p.CreateReplicas) > 0 || p.Surplus != nil
	in.Volume.Status = p.Status
	for i, r := range in.Replicas {
		for _, u := range p.UpdateReplicas {
			if u.Name == r.Name {
				in.Replicas[i] = u
			}
		}
	}
	for _, r := range p.CreateReplicas {
		in.Names[0].Replica += "'"
		r.Spec.DesireState, r.Status.CurrentState = longhorn.DesireStateRunning, longhorn.InstanceStateRunning
		r.Status.IP, r.Status.Port, r.Status.DirectoryCreated = "10.0.9.9", 8500, true
		in.Replicas = append(in.Replicas, r)
		in.Cluster.Replicas = append(in.Cluster.Replicas, placeOf(r))
	}
	if p.Surplus != nil {
		i := slices.IndexFunc(in.Replicas, func(r *longhorn.Replica) bool { return r.Name == p.Surplus.Replica.Name })
		in.Cluster.Replicas = without(in.Cluster.Replicas, placeOf(in.Replicas[i]))
		in.Replicas = slices.Delete(in.Replicas, i, i+1)
	}
	if p.UpdateEngine != nil {
		e.Spec = p.UpdateEngine.Spec
	}
	e.Status.CurrentReplicaAddressMap = e.Spec.ReplicaAddressMap
	e.Status.Epoch.Members, e.Status.ReplicaModeMap = nil, map[string]longhorn.ReplicaMode{}
	for _, r := range in.Replicas {
		if e.Spec.ReplicaAddressMap[r.Name] != "" {
			e.Status.Epoch.Members = append(e.Status.Epoch.Members, r.Name)
			e.Status.ReplicaModeMap[r.Name] = longhorn.ReplicaModeRW
		}
	}
	return busy
}

// drawMixed creates a served volume in which nothing else fails. Its replicas are good, failed, or must leave their
// disks.
func drawMixed(t *rapid.T) Facts {
	states := []option{
		member, member, member, member, once(0), once(time.Hour), all(once(0), diskless), fresh, all(fresh, asked), all(member, unasked), all(member, unnoted),
		all(once(long), asked, tried, shows(longhorn.ReplicaModeWO)), all(once(long), asked, tried, shows(longhorn.ReplicaModeERR)),
	}
	circumstances := []option{fresh, fresh, fresh, evicted, evicted, onNode("a"), all(onNode("a"), onDisk("disk-a")), onNode("b"), retried(7)}
	copies := []option{member}
	for range rapid.IntRange(0, 4).Draw(t, "copies") {
		copies = append(copies, all(rapid.SampledFrom(states).Draw(t, "state"), rapid.SampledFrom(circumstances).Draw(t, "circumstance")))
	}
	in := degradedFor(time.Hour, served(rapid.IntRange(1, 4).Draw(t, "asked for"), copies...))
	in.Cluster.Settings.NodeSoftAntiAffinity = rapid.Bool().Draw(t, "soft")
	if node := rapid.SampledFrom([]string{"", "a", "b", "e"}).Draw(t, "used on"); node != "" {
		in = usedOn(node, in)
	}
	if in.Volume.Spec.NumberOfReplicas == 1 && rapid.Bool().Draw(t, "strict") {
		in.Volume.Spec.DataLocality = longhorn.DataLocalityStrictLocal
	}
	return evictedDisks(in)
}

// From any initial state, a volume does not create and delete copies endlessly. At the end it has no more than the
// requested number, and one of them where it is used, if there is a place.
func TestAVolumeComesToRestHoweverItBegins(t *testing.T) {
	if testing.Short() {
		t.Skip("the simulation of 100 volumes takes seconds: not with -short")
	}
	rapid.Check(t, func(rt *rapid.T) {
		in := drawMixed(rt)
		count := in.Volume.Spec.NumberOfReplicas
		good := min(StateOf(in).Healthy(), count)
		made := 0
		for steps, still := 0, 0; still < 700; steps++ { // longer than the wait for a lost replica
			made += len(plan(in).CreateReplicas)
			require.Less(rt, steps, 5000, "it never comes to rest")
			still++
			if obey(t, &in) {
				still = 0
			}
			require.GreaterOrEqual(rt, StateOf(in).Healthy(), good, "good copies on the way")
		}
		require.LessOrEqual(rt, made, count+1, "copies made")
		c := StateOf(in)
		require.LessOrEqual(rt, c.count(View.isSound), count, "copies in the end")
		onNode := func(v View) bool { return v.isSound() && v.Spec.NodeID == in.Engine.Spec.NodeID }
		hasPlace := slices.ContainsFunc(in.Cluster.Nodes, func(n scheduler.Node) bool {
			return n.Name == in.Engine.Spec.NodeID && !n.Disks[0].EvictionRequested
		})
		if in.Volume.Spec.DataLocality != longhorn.DataLocalityDisabled && hasPlace {
			copies, add := shown(in, targetFor(in))
			require.True(rt, slices.ContainsFunc(c.List, onNode), "none is where the volume is used: %s; %s; %v", copies, add, in.Cluster.Replicas)
		}
	})
}

func TestVolumeComesToRestAsItIsAskedFor(t *testing.T) {
	for _, tc := range []struct {
		name  string
		in    Facts
		nodes []string // of its replicas at the end
	}{
		{"one copy more is asked for → a third one", served(3, member, member), []string{"a", "b", "c"}},
		{"one copy fewer is asked for → one goes", served(2, member, member, member), []string{"a", "b"}},
		{"a copy is to leave its disk → it moves to a node without one", served(2, member, all(member, evicted)), []string{"a", "c"}},
		{"both are to leave their disks → both move", served(2, all(member, evicted), all(member, evicted)), []string{"c", "d"}},
		{"both are to leave their disks, there is a place for one → one moves", onNodes(3, served(2, all(member, evicted), all(member, evicted))), []string{"a", "c"}},
		{"the only copy is to leave its disk → it moves", served(1, all(member, evicted)), []string{"b"}},
		{"a copy is wanted where the volume is used → one moves there", usedOn("e", served(2, member, member)), []string{"a", "e"}},
		{"the same of one copy → it moves there", usedOn("e", served(1, member)), []string{"e"}},
		{"wanted there, and one is to leave its disk → both", usedOn("e", served(2, all(member, evicted), member)), []string{"c", "e"}},
		{"its node is gone → another one", degradedFor(0, served(2, member, all(once(0), nodeGone))), []string{"a", "c"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := evictedDisks(tc.in)
			good := StateOf(in).Healthy()
			steps := 0
			for still := 0; still < 30; steps++ { // as long as a rebuild may wait
				require.Less(t, steps, 500, "it never comes to rest")
				still++
				if obey(t, &in) {
					still = 0
				}
				require.GreaterOrEqual(t, StateOf(in).Healthy(), min(good, in.Volume.Spec.NumberOfReplicas), "good copies on the way")
			}
			var nodes []string
			for _, r := range in.Replicas {
				nodes = append(nodes, r.Spec.NodeID)
			}
			slices.Sort(nodes)
			assert.Equal(t, tc.nodes, nodes)
			assert.GreaterOrEqual(t, StateOf(in).Healthy(), in.Volume.Spec.NumberOfReplicas)
		})
	}
}
