package copies

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/longhorn-lep/longhorn-manager/controller/volume/children"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/scheduler"
)

const (
	least = longhorn.AutoBalanceLeastEffort
	best  = longhorn.AutoBalanceBestEffort
)

// balanced moves the volume of served under a balance policy, on nodes "a", "b", … in the given zones, one letter
// each.
func balanced(mode longhorn.AutoBalance, zones string, in Facts) Facts {
	in.AutoBalance, in.RebuildLimit = mode, 5
	in.Cluster.Nodes = in.Cluster.Nodes[:min(len(zones), len(in.Cluster.Nodes))]
	for i := range in.Cluster.Nodes {
		in.Cluster.Nodes[i].Zone = zones[i : i+1]
	}
	return in
}

// twoDisks gives each node a second disk.
func twoDisks(in Facts) Facts {
	for i, n := range in.Cluster.Nodes {
		d := n.Disks[0]
		d.Name, d.UUID = "d2", "disk2-"+n.Name
		in.Cluster.Nodes[i].Disks = append(slices.Clone(n.Disks), d)
	}
	return in
}

func softNodes(in Facts) Facts {
	in.Cluster.Settings.NodeSoftAntiAffinity = true
	return in
}

func closedTo(node string, in Facts) Facts {
	for i, n := range in.Cluster.Nodes {
		if n.Name == node {
			in.Cluster.Nodes[i].AllowScheduling = false
		}
	}
	return in
}

// disksOf are the disks of a volume's replicas, in order.
func disksOf(in Facts) string {
	var disks []string
	for _, r := range in.Replicas {
		disks = append(disks, strings.TrimPrefix(r.Spec.DiskID, "disk-"))
	}
	slices.Sort(disks)
	return strings.Join(disks, " ")
}

func on(place string) option { return all(member, onNode(place), onDisk("disk-"+place)) }

func TestABalancedVolumeComesToLieBetter(t *testing.T) {
	hardZones := func(in Facts) Facts {
		in.Cluster.Settings.ZoneSoftAntiAffinity = false
		return in
	}
	own := func(mode longhorn.AutoBalance, in Facts) Facts {
		in.Volume.Spec.ReplicaAutoBalance = mode
		return in
	}
	for _, tc := range []struct {
		name string
		in   Facts
		want string // disks at the end
		made int
	}{
		{"all nodes have one → nothing moves", balanced(best, "111", served(3, on("a"), on("b"), on("c"))), "a b c", 0},
		{"two share a node, another is free → one moves there", balanced(least, "111", served(2, on("a"), on("a"))), "a b", 1},
		{"the same, disabled → nothing moves", balanced(longhorn.AutoBalanceDisabled, "111", served(2, on("a"), on("a"))), "a a", 0},
		{"the same, disabled, but not for this volume → one moves", own(least, balanced(longhorn.AutoBalanceDisabled, "111", served(2, on("a"), on("a")))), "a b", 1},
		{"the same, but not for this volume → nothing moves", own(longhorn.AutoBalanceDisabled, balanced(best, "111", served(2, on("a"), on("a")))), "a a", 0},
		{"the same, the volume follows the setting → one moves", own(longhorn.AutoBalanceIgnored, balanced(least, "111", served(2, on("a"), on("a")))), "a b", 1},
		{"the same, the other node takes none → nothing moves", closedTo("b", balanced(least, "11", served(2, on("a"), on("a")))), "a a", 0},
		{"the same, rebuilds are off → nothing moves", withoutRebuilds(balanced(least, "111", served(2, on("a"), on("a")))), "a a", 0},
		{"two share a disk, the node has another → one moves", softNodes(twoDisks(balanced(least, "1", served(2, on("a"), on("a"))))), "a disk2-a", 1},
		{"two zones, both in one → one moves to the other zone", balanced(least, "112", served(2, on("a"), on("b"))), "a c", 1},
		{"the same, zones must differ → one moves to the other zone", hardZones(balanced(least, "112", served(2, on("a"), on("b")))), "a c", 1},
		{"three and one in two zones, least effort → all zones have one, and nothing moves", balanced(least, "11122", served(4, on("a"), on("b"), on("c"), on("d"))), "a b c d", 0},
		{"three and one in two zones, best effort → two and two", balanced(best, "11122", served(4, on("a"), on("b"), on("c"), on("d"))), "a b d e", 1},
		{"two and one in two zones → as even as can be", balanced(best, "11122", served(3, on("a"), on("b"), on("d"))), "a b d", 0},
		{"three on a node, one on another → two and two", softNodes(twoDisks(balanced(best, "12", served(4, on("a"), on("a"), on("a"), on("b"))))), "a b disk2-a disk2-b", 2},
		{"both in one zone, one where the volume is used → that one stays", balanced(least, "112", usedOn("b", served(2, on("a"), on("b")))), "b c", 1},
		{"one copy → it has no better place", balanced(best, "123", served(1, on("a"))), "a", 0},
		{"one failed and has come back, and lies better → it is rebuilt, and none is made", balanced(least, "112", served(2, on("a"), on("b"), once(time.Minute))), "a c", 0},
		{"one failed and has come back, and lies no better → it goes", balanced(least, "122", served(2, on("a"), on("b"), once(time.Minute))), "a b", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in, made := tc.in, 0
			for still, steps := 0, 0; still < 30; steps++ {
				require.Less(t, steps, 500, "it never comes to rest")
				made += len(plan(in).CreateReplicas)
				if still++; obey(t, &in) {
					still = 0
				}
				require.LessOrEqual(t, len(in.Replicas), tc.in.Volume.Spec.NumberOfReplicas+1)
				require.GreaterOrEqual(t, StateOf(in).Healthy(), tc.in.Volume.Spec.NumberOfReplicas)
			}
			assert.Equal(t, tc.want, disksOf(in))
			assert.Equal(t, tc.made, made)
			assert.Empty(t, conditionOf(in).Reason, "that there is no better place is no fault")
		})
	}
}

func TestABalancingCopyThatFailsIsNotMadeAgainAtOnce(t *testing.T) {
	in := balanced(least, "112", served(2, on("a"), on("b"), all(fresh, failedFor(time.Minute), away)))
	target := targetFor(in)
	assert.Equal(t, Decision{fateBuild, whyBalance}, target.Copies["r3"])
	assert.Nil(t, target.Add)
	assert.Equal(t, 9*time.Minute, target.After, "until its node has been away for long enough")
	in = balanced(least, "112", served(2, on("a"), on("b"), all(fresh, failedFor(10*time.Minute), away)))
	assert.Equal(t, Decision{fateDrop, whySurplus}, targetFor(in).Copies["r3"])
}

// A volume also claims the rebuild when its input does not have the zones of other nodes: the turns of other volumes
// depend on the claim.
func TestABalancingCopyIsClaimedWithoutTheCluster(t *testing.T) {
	in := balanced(least, "112", served(2, on("a"), on("b"), once(time.Minute)))
	for _, n := range in.Cluster.Nodes {
		fact := in.Nodes[n.Name]
		fact.Zone = n.Zone
		in.Nodes[n.Name] = fact
	}
	in.Cluster = scheduler.Snapshot{}
	assert.Equal(t, []string{"c"}, ClaimOf(in, true).Wants)
}

// drawBalanced creates a healthy volume with a random placement.
func drawBalanced(t *rapid.T) Facts {
	var copies []option
	for range rapid.IntRange(1, 5).Draw(t, "copies") {
		copies = append(copies, on(rapid.SampledFrom([]string{"a", "a", "b", "c", "d", "e"}).Draw(t, "place")))
	}
	zones := ""
	for range 5 {
		zones += rapid.SampledFrom([]string{"1", "1", "2", "3"}).Draw(t, "zone")
	}
	in := balanced(rapid.SampledFrom([]longhorn.AutoBalance{least, best}).Draw(t, "mode"), zones, served(len(copies), copies...))
	if rapid.Bool().Draw(t, "two disks") {
		in = twoDisks(in)
	}
	in.Cluster.Settings.NodeSoftAntiAffinity = rapid.Bool().Draw(t, "nodes soft")
	in.Cluster.Settings.ZoneSoftAntiAffinity = rapid.Bool().Draw(t, "zones soft")
	in.Cluster.Settings.DiskSoftAntiAffinity = rapid.Bool().Draw(t, "disks soft")
	in = closedTo(rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "closed"), in)
	if node := rapid.SampledFrom([]string{"", "", "a", "b"}).Draw(t, "used on"); node != "" {
		in = usedOn(node, in)
	}
	return in
}

// From any initial placement, a volume comes to rest. It is better spread after each copy that is created for its
// balance, never has more than one copy beyond the count, and finds no better place at the end.
func TestBalanceComesToRest(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := drawBalanced(rt)
		count := in.Volume.Spec.NumberOfReplicas
		spreads := func() spread {
			f := policyFactsOf(in, StateOf(in), "")
			return f.spreadOf(f.settled())
		}
		was, moves := spreads(), 0
		for still, steps := 0, 0; still < 30; steps++ {
			require.Less(rt, steps, 1000, "it never comes to rest")
			p := plan(in)
			isMove := len(p.CreateReplicas) > 0 && p.Status.LastLocalReplicaAt == in.Volume.Status.LastLocalReplicaAt
			if isMove {
				was = spreads()
				moves++
			}
			if still++; obey(t, &in) {
				still = 0
			}
			require.LessOrEqual(rt, len(in.Replicas), count+1)
			require.GreaterOrEqual(rt, StateOf(in).Healthy(), count)
			if moves > 0 && len(in.Replicas) == count {
				is := spreads()
				require.True(rt, is == was || isBetter(in.AutoBalance, is, was), "%+v is no better than %+v", is, was)
				was = is
			}
		}
		require.LessOrEqual(rt, moves, 2*count, "moves")
		f := policyFactsOf(in, StateOf(in), "")
		if !f.mayBalance() {
			return
		}
		for _, n := range in.Cluster.Nodes {
			want := request(in.Volume)
			want.HardNodeAffinity = n.Name
			if found, err := scheduler.Schedule(in.Cluster, want); err == nil {
				require.False(rt, f.improves(View{Replica: children.NewReplica(in.Volume, in.Names[0], found)}), "it would lie better with one on %s: %s", n.Name, disksOf(in))
			}
		}
	})
}
