package volume

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/controller/volume/children"
	"github.com/longhorn-lep/longhorn-manager/controller/volume/copies"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/scheduler"
)

// traveller is a best-effort volume with a pod that moves from node to node. The plan is carried out at each event:
// its requests take effect at once, and a rebuild takes its time.
type traveller struct {
	t       *testing.T
	in      Input
	takes   time.Duration        // a rebuild
	ends    map[string]time.Time // of rebuilds under way, by replica
	made    int                  // replicas
	rebuilt int                  // started rebuilds
	most    int                  // replicas at a time, on nodes that are up
}

func newTraveller(t *testing.T, replicas int, takes time.Duration) *traveller {
	t.Helper()
	in := served(replicas, slices.Repeat([]option{member}, replicas)...)
	in.RebuildLimit, in.Volume.Spec.DataLocality = 5, longhorn.DataLocalityBestEffort
	template := in.Cluster.Nodes[0]
	in.Cluster.Nodes = nil
	for i := range 9 {
		node := string(rune('a' + i))
		n := template
		n.Name = node
		n.Disks = slices.Clone(template.Disks)
		n.Disks[0].UUID = "disk-" + node
		in.Cluster.Nodes = append(in.Cluster.Nodes, n)
		in.Nodes[node] = copies.NodeFact{}
	}
	tr := &traveller{t: t, in: in, takes: takes, ends: map[string]time.Time{}}
	tr.settle()
	return tr
}

// moveTo attaches the volume to another node: the engine there starts with only the members.
func (tr *traveller) moveTo(node string) {
	e := tr.in.Engine
	tr.in.Volume.Spec.NodeID, e.Spec.NodeID = node, node
	for name := range tr.ends {
		delete(tr.ends, name)
		delete(e.Status.ReplicaModeMap, name)
		delete(e.Spec.ReplicaAddressMap, name)
		delete(e.Status.CurrentReplicaAddressMap, name)
	}
	tr.settle()
}

// pass advances the time, and plans whenever a plan requested it or a rebuild has ended.
func (tr *traveller) pass(d time.Duration) {
	until := tr.in.Now.Add(d)
	for {
		next := until
		for _, end := range tr.ends {
			next = earliest(next, end)
		}
		if after := tr.settle(); after > 0 {
			next = earliest(next, tr.in.Now.Add(after))
		}
		tr.in.Now = next
		for name, end := range tr.ends {
			if !end.After(next) {
				delete(tr.ends, name)
				tr.in.Engine.Status.ReplicaModeMap[name] = longhorn.ReplicaModeRW
				tr.in.Engine.Status.Epoch.Members = append(tr.in.Engine.Status.Epoch.Members, name)
			}
		}
		if next.Equal(until) {
			tr.settle()
			return
		}
	}
}

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// settle plans and carries out the plan until a plan requests nothing. It returns the time until the next plan.
func (tr *traveller) settle() time.Duration {
	tr.t.Helper()
	for range 50 {
		p := plan(tr.in)
		tr.in.Volume.Status = p.Status
		up := func(r *longhorn.Replica) bool { return !tr.in.Nodes[r.Spec.NodeID].Down }
		tr.most = max(tr.most, len(slices.DeleteFunc(slices.Concat(tr.in.Replicas, p.CreateReplicas), func(r *longhorn.Replica) bool { return !up(r) })))
		if !tr.apply(p) {
			return p.After
		}
	}
	require.Fail(tr.t, "it is never content")
	return 0
}

func (tr *traveller) apply(p Plan) (did bool) {
	in, e := &tr.in, tr.in.Engine
	for i, r := range in.Replicas {
		for _, u := range p.UpdateReplicas {
			if u.Name == r.Name {
				in.Replicas[i], did = u, true
			}
		}
	}
	if p.UpdateEngine != nil {
		did = true
		e.Spec = p.UpdateEngine.Spec
		tr.follow()
	}
	for _, r := range p.CreateReplicas {
		did = true
		tr.made++
		in.Names = []children.ReplicaNames{{Replica: fmt.Sprintf("new-%d", tr.made), Directory: "dir"}}
		r.Spec.DesireState, r.Status.CurrentState = longhorn.DesireStateRunning, longhorn.InstanceStateRunning
		r.Status.IP, r.Status.Port, r.Status.DirectoryCreated = "10.0.1."+fmt.Sprint(tr.made), 8500, true
		in.Replicas = append(in.Replicas, r)
		in.Cluster.Replicas = append(in.Cluster.Replicas, placeOf(r))
	}
	if s := p.Surplus; s != nil {
		did = true
		in.Replicas = slices.DeleteFunc(in.Replicas, func(r *longhorn.Replica) bool { return r.Name == s.Replica.Name })
		in.Cluster.Replicas = without(in.Cluster.Replicas, placeOf(s.Replica))
	}
	return did
}

// follow makes the engine do what its spec requests: exclude members, and start rebuilds.
func (tr *traveller) follow() {
	e := tr.in.Engine
	asked := e.Spec.ReplicaAddressMap
	e.Status.Epoch.Members = slices.DeleteFunc(e.Status.Epoch.Members, func(name string) bool { return asked[name] == "" })
	require.NotEmpty(tr.t, e.Status.Epoch.Members, "the last member was left out")
	for name := range e.Status.ReplicaModeMap {
		if asked[name] == "" {
			delete(e.Status.ReplicaModeMap, name)
			delete(tr.ends, name)
		}
	}
	e.Status.CurrentReplicaAddressMap = map[string]string{}
	for name, at := range asked {
		e.Status.CurrentReplicaAddressMap[name] = at
		if e.Status.ReplicaModeMap[name] == "" {
			tr.rebuilt++
			e.Status.ReplicaModeMap[name], tr.ends[name] = longhorn.ReplicaModeWO, tr.in.Now.Add(tr.takes)
		}
	}
}

// lose takes a node down, unless no member would be left or the volume is used there: the engine expels the replicas
// on it.
func (tr *traveller) lose(node string) (did bool) {
	e := tr.in.Engine
	var on []string
	for _, r := range tr.in.Replicas {
		if r.Spec.NodeID == node {
			on = append(on, r.Name)
		}
	}
	rest := slices.DeleteFunc(slices.Clone(e.Status.Epoch.Members), func(name string) bool { return slices.Contains(on, name) })
	if len(rest) == 0 || node == e.Spec.NodeID || tr.in.Nodes[node].Down {
		return false
	}
	tr.in.Nodes[node] = copies.NodeFact{Down: true}
	tr.in.Cluster.Nodes[node[0]-'a'].Ready = false
	e.Status.Epoch.Members = rest
	for _, name := range on {
		delete(tr.ends, name)
		if e.Status.ReplicaModeMap[name] != "" {
			e.Status.ReplicaModeMap[name] = longhorn.ReplicaModeERR
		}
	}
	tr.settle()
	return true
}

func (tr *traveller) giveBack(node string) {
	tr.in.Nodes[node] = copies.NodeFact{}
	tr.in.Cluster.Nodes[node[0]-'a'].Ready = true
	tr.settle()
}

func (tr *traveller) isLocal() bool {
	return slices.ContainsFunc(tr.in.Replicas, func(r *longhorn.Replica) bool {
		return r.Spec.NodeID == tr.in.Engine.Spec.NodeID && slices.Contains(tr.in.Engine.Status.Epoch.Members, r.Name)
	})
}

func TestAVolumeThatStaysGetsALocalReplica(t *testing.T) {
	tr := newTraveller(t, 2, 10*time.Minute)
	tr.moveTo("d")
	tr.pass(9 * time.Minute)
	assert.False(t, tr.isLocal())
	assert.Len(t, tr.in.Replicas, 3, "none goes before the new one is good")
	tr.pass(2 * time.Minute)
	assert.True(t, tr.isLocal())
	assert.Len(t, tr.in.Replicas, 2)
	assert.Equal(t, 1, tr.rebuilt)

	tr.moveTo("e")
	tr.pass(5*time.Minute - time.Second)
	assert.Equal(t, 1, tr.rebuilt, "it may be about to move on")
	assert.Equal(t, "LocalReplicaWaits", conditionOf(tr.in).Reason)
	assert.Equal(t, longhorn.ConditionTrue, conditionOf(tr.in).Status)
	tr.pass(time.Minute)
	assert.Equal(t, 2, tr.rebuilt, "it stays")
	assert.Empty(t, conditionOf(tr.in).Reason)

	tr.pass(time.Hour)
	tr.moveTo("f")
	assert.Equal(t, 3, tr.rebuilt, "the last move is long ago: no wait")
}

func conditionOf(in Input) longhorn.Condition {
	for _, c := range in.Volume.Status.Conditions {
		if c.Type == "Scheduled" {
			return c
		}
	}
	return longhorn.Condition{}
}

// TestAVolumeThatBouncesIsCopiedOnce: the volume moves every minute, for half an hour, however long a rebuild takes.
func TestAVolumeThatBouncesIsCopiedOnce(t *testing.T) {
	for _, takes := range []time.Duration{time.Second, 50 * time.Second, 20 * time.Minute} {
		for replicas := 1; replicas <= 3; replicas++ {
			t.Run(fmt.Sprintf("%d replicas, a rebuild takes %s", replicas, takes), func(t *testing.T) {
				tr := newTraveller(t, replicas, takes)
				for minute := range 30 {
					tr.moveTo([]string{"h", "i"}[minute%2])
					tr.pass(time.Minute)
				}
				assert.Equal(t, 1, tr.rebuilt)
				assert.LessOrEqual(t, tr.most, replicas+1)
				tr.pass(5*time.Minute + takes)
				assert.True(t, tr.isLocal(), "it stays now")
			})
		}
	}
}

// TestSevenDaysOfMoves: pods move at random, nodes are full for a while, and fail and return. There is never more than
// one replica beyond the count, and at most one rebuild for each move and each lost node.
func TestSevenDaysOfMoves(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 7))
		replicas := 1 + rng.IntN(3)
		tr := newTraveller(t, replicas, time.Duration(1+rng.IntN(3*3600))*time.Second)
		moves, losses := 0, 0
		for start := tr.in.Now; tr.in.Now.Sub(start) < 7*24*time.Hour; {
			node := string(rune('a' + rng.IntN(9)))
			switch rng.IntN(6) {
			case 0:
				n := &tr.in.Cluster.Nodes[node[0]-'a']
				n.AllowScheduling = !n.AllowScheduling
			case 1:
				if tr.lose(node) {
					losses++
				}
			case 2:
				tr.giveBack(node)
			default:
				if node != tr.in.Engine.Spec.NodeID && !tr.in.Nodes[node].Down {
					moves++
					tr.moveTo(node)
				}
			}
			tr.pass(time.Duration(rng.ExpFloat64() * float64(2*time.Hour)))
			require.LessOrEqual(t, tr.most, replicas+1, "seed %d", seed)
			require.LessOrEqual(t, tr.rebuilt, moves+losses, "seed %d: rebuilds after so many moves and lost nodes", seed)
		}
		for i := range tr.in.Cluster.Nodes {
			tr.in.Cluster.Nodes[i].AllowScheduling = true
			tr.giveBack(tr.in.Cluster.Nodes[i].Name)
		}
		tr.pass(2*time.Hour + 2*tr.takes)
		assert.True(t, tr.isLocal(), "seed %d: it stays, and there is room", seed)
		assert.Len(t, tr.in.Replicas, replicas, "seed %d", seed)
	}
}

// TestThreeDaysOfBalance: nodes fail and return, are cordoned for a while, and pods move. There is never more than one
// copy beyond the count. There are no more rebuilds than reasons: moves of the volume, lost nodes, and nodes that
// opened.
func TestThreeDaysOfBalance(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 11))
		replicas := 2 + rng.IntN(2)
		tr := newTraveller(t, replicas, time.Duration(1+rng.IntN(1800))*time.Second)
		tr.in.AutoBalance = []longhorn.AutoBalance{longhorn.AutoBalanceLeastEffort, longhorn.AutoBalanceBestEffort}[seed%2]
		if rng.IntN(2) == 0 {
			tr.in.Volume.Spec.DataLocality = longhorn.DataLocalityDisabled
		}
		for i := range tr.in.Cluster.Nodes {
			tr.in.Cluster.Nodes[i].Zone = fmt.Sprint(i % 3)
		}
		reasons := 2 // its initial placement may be bad
		for start := tr.in.Now; tr.in.Now.Sub(start) < 3*24*time.Hour; {
			node := string(rune('a' + rng.IntN(9)))
			switch rng.IntN(5) {
			case 0:
				n := &tr.in.Cluster.Nodes[node[0]-'a']
				n.AllowScheduling = !n.AllowScheduling
				reasons++
			case 1:
				if tr.lose(node) {
					reasons += 2 // a replacement, and perhaps a better place when the node is back
				}
			case 2, 3:
				tr.giveBack(node)
			default:
				if node != tr.in.Engine.Spec.NodeID && !tr.in.Nodes[node].Down {
					reasons += 2 // a local copy, and perhaps a better place for the others
					tr.moveTo(node)
				}
			}
			tr.pass(time.Duration(rng.ExpFloat64() * float64(time.Hour)))
			require.LessOrEqual(t, tr.most, replicas+1, "seed %d", seed)
			require.LessOrEqual(t, len(tr.ends), 1, "seed %d: rebuilds at a time", seed)
			require.LessOrEqual(t, tr.rebuilt, reasons, "seed %d", seed)
		}
		for i := range tr.in.Cluster.Nodes {
			tr.in.Cluster.Nodes[i].AllowScheduling = true
			tr.giveBack(tr.in.Cluster.Nodes[i].Name)
		}
		tr.pass(6 * time.Hour)
		rebuilt := tr.rebuilt
		tr.pass(24 * time.Hour)
		assert.Equal(t, rebuilt, tr.rebuilt, "seed %d: nothing changes, so nothing moves", seed)
		assert.Len(t, tr.in.Replicas, replicas, "seed %d", seed)
		zones := map[string]bool{}
		for _, r := range tr.in.Replicas {
			zones[tr.in.Cluster.Nodes[r.Spec.NodeID[0]-'a'].Zone] = true
		}
		assert.Len(t, zones, replicas, "seed %d: each copy has a zone of its own", seed)
	}
}

func placeOf(r *longhorn.Replica) scheduler.Replica {
	return scheduler.Replica{Node: r.Spec.NodeID, DiskUUID: r.Spec.DiskID}
}

func without(list []scheduler.Replica, r scheduler.Replica) []scheduler.Replica {
	i := slices.Index(list, r)
	return slices.Delete(slices.Clone(list), i, i+1)
}
