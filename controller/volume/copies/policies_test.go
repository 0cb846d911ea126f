package copies

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// evicted: it must leave its disk.
func evicted(in *Facts, r *longhorn.Replica) {
	if in.Evicted == nil {
		in.Evicted = map[string]bool{}
	}
	in.Evicted[r.Name] = true
}

// unnoted: its spec never recorded that it was good.
func unnoted(_ *Facts, r *longhorn.Replica) { r.Spec.LastHealthyAt = "" }

// usedOn means that the volume is used on a node and needs a local replica there.
func usedOn(node string, in Facts) Facts {
	in.Volume.Spec.NodeID, in.Engine.Spec.NodeID = node, node
	in.Volume.Spec.DataLocality = longhorn.DataLocalityBestEffort
	return in
}

// inZones sets the zones of nodes a, b and c.
func inZones(a, b, c string, in Facts) Facts {
	for i, n := range in.Cluster.Nodes {
		in.Cluster.Nodes[i].Zone = map[string]string{"a": a, "b": b, "c": c}[n.Name]
	}
	return in
}

func keptFor(minutes int, in Facts) Facts {
	in.Volume.Spec.StaleReplicaTimeout = minutes
	return in
}

func withoutRebuilds(in Facts) Facts {
	in.RebuildLimit = 0
	return in
}

// targetFor is the target of a volume that has had too few replicas since the time in its status.
func targetFor(in Facts) Target {
	return targetOf(policyFactsOf(in, StateOf(in), in.Volume.Status.LastDegradedAt))
}

// shown is a target as text, as the cases write it.
func shown(in Facts, t Target) (copies, add string) {
	var words []string
	for _, r := range in.Replicas {
		words = append(words, string(t.Copies[r.Name].Fate)+" "+string(t.Copies[r.Name].Why))
	}
	if a := t.Add; a != nil {
		add = strings.Join(strings.Fields(string(a.Why)+" "+a.Moves+" "+prefixed("on ", a.Node)+" "+prefixed("near ", a.Near)), " ")
	}
	return strings.Join(words, ", "), add
}

func prefixed(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}

func TestTarget(t *testing.T) {
	const wo, failed = longhorn.ReplicaModeWO, longhorn.ReplicaModeERR
	stale := 2880 * time.Minute
	rebuilding := all(once(long), asked, tried, shows(wo))
	lostData := broken(types.ReasonDataDeleted)
	for _, tc := range []struct {
		name  string
		in    Facts
		want  string
		add   string
		after time.Duration
	}{
		// The count.
		{name: "as many as asked for → all stay", in: served(2, member, member), want: "keep member, keep member"},
		{name: "one asked for, one there → it stays", in: served(1, member), want: "keep last good"},
		{name: "fewer than asked for → one more, at once", in: degradedFor(0, served(3, member, member)), want: "keep member, keep member", add: "count"},
		{name: "two fewer → one at a time", in: degradedFor(0, served(3, member)), want: "keep last good", add: "count"},
		{name: "a new one has not begun → it is waited for", in: degradedFor(0, served(2, member, all(fresh, notStarted))), want: "keep last good, build awaited"},
		{name: "a new one is being copied → waited for", in: degradedFor(0, served(2, member, all(fresh, asked, tried, shows(wo)))), want: "keep last good, build rebuilding"},
		{name: "one more than asked for → the one away from the engine goes", in: served(1, member, member), want: "keep member, drop surplus"},
		{name: "two more than asked for → both are to go", in: served(1, member, member, member), want: "keep member, drop surplus, drop surplus"},
		{name: "one more, one is down, which the engine has not noticed → none goes", in: served(2, member, all(member, away), member), want: "keep member, keep member, keep member"},
		{name: "one more, two on one node → one of these goes", in: served(2, member, all(member, onNode("a")), member), want: "keep member, drop surplus, keep member"},
		{name: "one more, two on one disk, two others on one node → one of the disk goes", in: served(3, all(member, onNode("x")), all(member, onNode("x")), all(member, onNode("y"), onDisk("d")), all(member, onNode("z"), onDisk("d"))), want: "keep member, keep member, keep member, drop surplus"},
		{name: "one more, two in one zone, on nodes of their own → one of the zone goes", in: inZones("1", "2", "1", served(2, all(member, onNode("a")), all(member, onNode("b")), all(member, onNode("c")))), want: "keep member, keep member, drop surplus"},
		{name: "one more, two in one zone, but two others on one node → one of the node goes", in: inZones("1", "2", "3", served(3, all(member, onNode("a")), all(member, onNode("b")), all(member, onNode("b")), all(member, onNode("c")))), want: "keep member, keep member, drop surplus, keep member"},
		{name: "one more, three in one zone, but two others on one node → one of the node goes", in: inZones("1", "1", "1", served(4, member, member, member, all(member, onNode("d")), all(member, onNode("d")))), want: "keep member, keep member, keep member, keep member, drop surplus"},
		{name: "one more, the last by name is on the engine's node → the one away from it goes", in: served(1, all(member, onNode("b")), all(member, onNode("a"))), want: "drop surplus, keep member"},
		{name: "one more, the local one and another in one zone → that one goes", in: inZones("1", "1", "2", usedOn("a", served(2, member, member, member))), want: "keep local, drop surplus, keep member"},
		{name: "one more, one is on its way out → that one goes", in: served(2, member, all(member, unasked), member), want: "keep member, drop surplus, keep member"},
		{name: "one more, all away from the engine → the last by name goes", in: served(2, all(member, onNode("x")), all(member, onNode("y")), all(member, onNode("z"))), want: "keep member, keep member, drop surplus"},
		{name: "enough, one failed → it goes", in: served(2, member, member, once(time.Minute)), want: "keep member, keep member, drop surplus"},
		{name: "enough, a new one was never needed → it goes", in: served(2, member, member, fresh), want: "keep member, keep member, drop surplus"},
		{name: "enough, one is being copied → it goes", in: served(2, member, member, rebuilding), want: "keep member, keep member, drop surplus"},
		{name: "enough, one lost its data → it goes", in: served(1, member, all(once(0), lostData)), want: "keep last good, drop surplus"},
		{name: "rebuilds are off, one too few → none is made, for it would stay empty", in: withoutRebuilds(degradedFor(0, served(3, member, member))), want: "keep member, keep member"},
		{name: "rebuilds are off, one too many → it goes all the same", in: withoutRebuilds(served(1, member, member)), want: "keep member, drop surplus"},

		// Replacing lost replicas.
		{name: "one failed and runs → it is to be rebuilt", in: degradedFor(time.Hour, served(2, member, once(time.Minute))), want: "keep last good, build awaited"},
		{name: "one failed, its node is away, the wait not over → waited for", in: degradedFor(4*time.Minute, served(2, member, all(once(time.Minute), away))), want: "keep last good, build away", after: 6 * time.Minute},
		{name: "one failed, its node is away, the wait over → another one, and it may still return", in: degradedFor(10*time.Minute, served(2, member, all(once(10*time.Minute), away))), want: "keep last good, build away", add: "count"},
		{name: "a new one failed before there were too few → the wait counts from when there were", in: degradedFor(time.Minute, served(2, member, all(fresh, failedFor(9*time.Minute), broken(types.ReasonDiskNotReady)))), want: "keep last good, build away", after: 9 * time.Minute},
		{name: "its node is gone → another one at once; it stays until there are enough", in: degradedFor(0, served(2, member, all(once(0), nodeGone))), want: "keep last good, keep lost", add: "count"},
		{name: "the leader found its node removed after it had failed → another one at once; it stays until there are enough", in: degradedFor(0, served(2, member, all(once(0), nodeLeft))), want: "keep last good, keep lost", add: "count"},
		{name: "its data was deleted → another one at once", in: degradedFor(0, served(2, member, all(once(0), lostData))), want: "keep last good, keep lost", add: "count"},
		{name: "its directory is missing → another one at once", in: degradedFor(0, served(2, member, all(once(0), broken(types.ReasonReplicaMissing)))), want: "keep last good, keep lost", add: "count"},
		{name: "its disk is broken, the wait not over → waited for", in: degradedFor(time.Minute, served(2, member, all(once(time.Minute), broken(types.ReasonDiskNotReady)))), want: "keep last good, build away", after: 9 * time.Minute},
		{name: "its node came back without its disk → another one at once", in: degradedFor(0, served(2, member, all(once(0), diskless))), want: "keep last good, keep lost", add: "count"},
		{name: "a good one fails its rebuilds, the wait over → another one beside it", in: degradedFor(time.Hour, served(2, member, all(once(0), retried(5)))), want: "keep last good, build away", add: "count"},
		{name: "a good one fails its rebuilds, the wait not over → waited for", in: degradedFor(0, served(2, member, all(once(0), retried(5)))), want: "keep last good, build away", after: 10 * time.Minute},
		{name: "a new one fails its rebuilds → no second one: the fault is not the disk's", in: degradedFor(time.Hour, served(2, member, all(fresh, retried(9)))), want: "keep last good, build awaited"},
		{name: "one is lost, another one is awaited → none yet", in: degradedFor(time.Hour, served(3, member, all(once(0), nodeGone), once(time.Minute))), want: "keep last good, keep lost, build awaited"},
		{name: "one is away and another one, too → the wait counts from when the volume was degraded", in: degradedFor(9*time.Minute, served(3, member, all(once(time.Minute), away), all(once(9*time.Minute), away))), want: "keep last good, build away, build away", after: time.Minute},

		// Members that cannot go.
		{name: "a member fails, which is not recorded → it stays: it may alone have a write", in: served(2, member, all(member, shows(failed))), want: "keep last good, keep unsettled"},
		{name: "enough others serve, a member fails, which is not recorded → it stays", in: served(2, member, member, all(member, shows(failed))), want: "keep member, keep member, keep unsettled"},
		{name: "a member is away, which is not recorded → it stays, and none is made", in: degradedFor(time.Hour, served(2, member, all(member, away, shows(failed)))), want: "keep last good, keep unsettled"},
		{name: "a member is away for longer than any wait → it stays until an epoch lacks it", in: keptFor(1, degradedFor(long, served(2, member, all(member, away, shows(failed), func(_ *Facts, r *longhorn.Replica) { r.Spec.FailedAt = ago(long) })))), want: "keep last good, keep unsettled"},
		{name: "no member serves → all stay", in: served(2, all(member, shows(failed)), all(member, shows(failed))), want: "keep last good, keep last good"},
		{name: "a member that the engine does not serve yet → it stays, and none is made", in: degradedFor(time.Hour, served(2, member, all(member, shows(wo)))), want: "keep last good, keep unsettled"},
		{name: "its object is deleted, another serves → it goes, and another one comes", in: degradedFor(0, served(2, member, all(member, beingDeleted))), want: "keep last good, drop deleted", add: "count"},
		{name: "the last member's object is deleted → it stays", in: degradedFor(0, served(1, all(member, beingDeleted))), want: "keep last good", add: "count"},
		{name: "the objects of all members are deleted → they stay", in: degradedFor(0, served(2, all(member, beingDeleted), all(member, beingDeleted))), want: "keep last good, keep last good", add: "count"},
		{name: "a deleted one and one that fails → both stay", in: served(2, all(member, shows(failed)), all(member, beingDeleted)), want: "keep last good, keep last good"},
		{name: "its node was removed, another serves → it goes, and another one comes", in: degradedFor(0, served(2, member, all(member, nodeLeft))), want: "keep last good, drop node gone", add: "count"},
		{name: "the last member's node was removed → it stays, and another one is made of it", in: degradedFor(0, served(1, all(member, onNode("b"), nodeLeft))), want: "keep last good", add: "count"},
		{name: "its Node is not there, which is all that is known → it stays", in: served(2, member, all(member, nodeGone)), want: "keep last good, keep member"},
		{name: "one that failed is being deleted → it goes", in: served(2, member, member, all(once(0), beingDeleted)), want: "keep member, keep member, drop deleted"},

		// Deleting failed replicas.
		{name: "it failed longer ago than the user waits, and is away → it goes", in: degradedFor(stale, served(3, member, member, all(once(stale), away))), want: "keep member, keep member, drop stale", add: "count"},
		{name: "it failed a minute less ago → it stays, and is looked at then", in: degradedFor(stale, served(3, member, member, all(once(stale-time.Minute), away))), want: "keep member, keep member, build away", add: "count", after: time.Minute},
		{name: "a member that is down, which the engine has not noticed, and that failed long ago once → it is not given up", in: served(2, member, all(member, away, failedFor(2*stale))), want: "keep last good, keep member"},
		{name: "it failed long ago, and serves again → it is rebuilt, not given up", in: degradedFor(stale, served(2, all(member), once(2*stale))), want: "keep last good, build awaited"},
		{name: "it failed long ago, and is being rebuilt → it is not given up", in: degradedFor(stale, served(2, all(member), all(once(2*stale), asked, tried, shows(wo), starting))), want: "keep last good, build rebuilding"},
		{name: "the user waits for ever → it stays", in: keptFor(0, degradedFor(stale, served(3, member, member, all(once(2*stale), away)))), want: "keep member, keep member, build away", add: "count"},
		{name: "a new one cannot be opened, and the user waits a minute → the next one is not made before a lost one would be replaced", in: keptFor(1, degradedFor(long, served(2, member, all(fresh, failedFor(2*time.Minute), broken(types.ReasonDiskMissing))))), want: "keep last good, build away", after: 8 * time.Minute},
		{name: "a new one could not be opened for as long as a lost one is waited for → it goes, and the next one comes", in: keptFor(1, degradedFor(long, served(2, member, all(fresh, failedFor(10*time.Minute), broken(types.ReasonDiskMissing))))), want: "keep last good, drop stale", add: "count"},
		{name: "a new local one cannot be opened, and the user waits a minute → it stays for a while", in: keptFor(1, usedOn("c", served(2, member, member, all(fresh, failedFor(2*time.Minute), broken(types.ReasonDiskMissing))))), want: "keep member, keep member, build away", after: 8 * time.Minute},
		{name: "a good one failed, and the user waits a minute → it goes then", in: keptFor(1, degradedFor(long, served(2, member, all(once(2*time.Minute), away)))), want: "keep last good, drop stale", add: "count"},
		{name: "the other one was never noted to be good → the failed one stays, however old", in: served(1, all(member, unnoted), all(once(2*stale), away)), want: "keep last good, keep last good"},
		{name: "the other ones were never noted to be good, one too few → the failed one is rebuilt", in: degradedFor(0, served(3, all(member, unnoted), all(member, unnoted), once(time.Minute))), want: "keep member, keep member, build last good"},
		{name: "no member serves → one that failed long ago stays", in: degradedFor(0, served(1, all(member, shows(failed)), all(once(2*stale), away))), want: "keep last good, build last good"},

		// A local replica where the volume is used.
		{name: "used where a copy is → nothing more", in: usedOn("a", served(2, member, member)), want: "keep local, keep member"},
		{name: "used where no copy is → one more than the count", in: usedOn("d", served(2, member, member)), want: "keep member, keep member", add: "local on d"},
		{name: "used where no copy is, not asked for → nothing", in: func() Facts {
			in := usedOn("d", served(2, member, member))
			in.Volume.Spec.DataLocality = longhorn.DataLocalityDisabled
			return in
		}(), want: "keep member, keep member"},
		{name: "attached without a device → nothing", in: func() Facts {
			in := usedOn("d", served(2, member, member))
			in.Engine.Spec.DisableFrontend = true
			return in
		}(), want: "keep member, keep member"},
		{name: "the local one is being copied → it may go on though there are enough", in: usedOn("c", served(2, member, member, all(fresh, asked, tried, shows(wo)))), want: "keep member, keep member, build local"},
		{name: "the local one failed and runs → it is rebuilt though there are enough", in: usedOn("c", served(2, member, member, once(time.Minute))), want: "keep member, keep member, build local"},
		{name: "the local one lost its data → it goes, and then another one comes", in: usedOn("c", served(2, member, member, all(once(0), lostData))), want: "keep member, keep member, drop surplus"},
		{name: "the local one was deleted → another one comes", in: usedOn("c", served(2, member, member, all(once(time.Minute), beingDeleted))), want: "keep member, keep member, drop deleted", add: "local on c"},
		{name: "the local one is refused by its disk → it stays for a while, or one after the other would be made", in: usedOn("c", served(2, member, member, all(fresh, failedFor(time.Minute), broken(types.ReasonDiskNotReady)))), want: "keep member, keep member, build away", after: 9 * time.Minute},
		{name: "the local one was refused as long ago as a lost one is waited for → it goes, and then another one comes", in: usedOn("c", served(2, member, member, all(fresh, failedFor(10*time.Minute), broken(types.ReasonDiskNotReady)))), want: "keep member, keep member, drop surplus"},
		{name: "the local one is refused, and lost ones are not waited for → it stays for a while all the same", in: func() Facts {
			in := usedOn("c", served(2, member, member, all(fresh, failedFor(time.Minute), broken(types.ReasonDiskNotReady))))
			in.ReplenishmentWait = 0
			return in
		}(), want: "keep member, keep member, build away", after: 4 * time.Minute},
		{name: "the local one is refused, and is to leave its disk → it goes", in: usedOn("c", served(2, member, member, all(fresh, evicted, failedFor(time.Minute), broken(types.ReasonDiskNotReady)))), want: "keep member, keep member, drop evicted"},
		{name: "one that is refused elsewhere, and there are enough → it goes", in: usedOn("a", served(2, member, member, all(fresh, failedFor(time.Minute), broken(types.ReasonDiskNotReady)))), want: "keep local, keep member, drop surplus"},
		{name: "one that is refused where the volume is used, but none is wanted there → it goes", in: served(2, member, member, all(fresh, onNode("a"), failedFor(time.Minute), broken(types.ReasonDiskNotReady))), want: "keep member, keep member, drop surplus"},
		{name: "the local one was deleted, one too few → one, there if possible", in: usedOn("c", degradedFor(0, served(3, member, member, all(once(time.Minute), beingDeleted)))), want: "keep member, keep member, drop deleted", add: "count near c"},
		{name: "two good ones are local, one is asked for → the first by name stays", in: usedOn("a", served(1, member, all(member, onNode("a")))), want: "keep local, drop surplus"},
		{name: "two are to become local → one of them is enough", in: usedOn("c", served(2, member, member, fresh, all(fresh, onNode("c")))), want: "keep member, keep member, build local, drop surplus"},
		{name: "the local one is good → one of the others goes", in: usedOn("c", served(2, member, member, member)), want: "keep member, drop surplus, keep local"},
		{name: "the local one is on its way out since the volume was elsewhere → it stays, another goes", in: usedOn("c", served(2, member, member, all(member, unasked))), want: "keep member, drop surplus, keep local"},
		{name: "the only one asked for is elsewhere, the local one is good → the other goes", in: usedOn("b", served(1, member, member)), want: "drop surplus, keep local"},
		{name: "one too few and none is local → one, there if possible", in: usedOn("d", degradedFor(0, served(3, member, member))), want: "keep member, keep member", add: "count near d"},
		{name: "one too few and one is local → one anywhere", in: usedOn("a", degradedFor(0, served(3, member, member))), want: "keep local, keep member", add: "count"},
		{name: "one too few and awaited → none local before that", in: usedOn("d", degradedFor(0, served(2, member, once(time.Minute)))), want: "keep last good, build awaited"},
		{name: "rebuilds are off → none local", in: withoutRebuilds(usedOn("d", served(2, member, member))), want: "keep member, keep member"},

		// Moving replicas off evicted disks.
		{name: "one is to leave its disk → another one first", in: served(2, member, all(member, evicted)), want: "keep member, keep evicting", add: "evict r2"},
		{name: "the only one is to leave its disk → another one first", in: served(1, all(member, evicted)), want: "keep last good", add: "evict r1"},
		{name: "all are to leave their disks → one after the other", in: served(2, all(member, evicted), all(member, evicted)), want: "keep evicting, keep evicting", add: "evict r1"},
		{name: "the one in its place is being copied → it stays", in: served(2, member, all(member, evicted), all(fresh, asked, tried, shows(wo))), want: "keep member, keep evicting, build rebuilding"},
		{name: "the one in its place has not begun → it stays", in: served(2, member, all(member, evicted), all(fresh, notStarted)), want: "keep member, keep evicting, build awaited"},
		{name: "the one in its place is good → it goes", in: served(2, member, all(member, evicted), member), want: "keep member, drop evicted, keep member"},
		{name: "enough others were there already → it goes at once", in: served(1, member, all(member, evicted)), want: "keep member, drop evicted"},
		{name: "all are to leave, the one in place of the first is good → the first goes, though there is no place for the next", in: served(2, all(member, evicted), all(member, evicted), member), want: "keep evicting, drop evicted, keep member", add: "evict r1"},
		{name: "two are to leave, one more than asked for is good → one goes", in: served(3, member, all(member, evicted), all(member, evicted), member), want: "keep member, keep evicting, drop evicted, keep member", add: "evict r2"},
		{name: "two are to leave, another one more than asked for is down → none goes", in: served(3, all(member, evicted), all(member, evicted), member, all(member, away)), want: "keep evicting, keep evicting, keep member, keep member", add: "evict r1"},
		{name: "a failed one and a good one are to leave → the good one is moved", in: served(2, all(once(time.Minute), evicted), member, all(member, evicted)), want: "drop evicted, keep member, keep evicting", add: "evict r3"},
		{name: "one is to leave and its process was replaced, enough others stay → it goes", in: served(1, member, all(member, evicted, replaced)), want: "keep last good, drop evicted"},
		{name: "a failed one is to leave, the other member is down → it is rebuilt", in: served(2, member, all(member, away), all(once(time.Minute), evicted)), want: "keep last good, keep member, build awaited"},
		{name: "eviction is taken back while its place is filled → the new one goes", in: served(2, member, member, all(fresh, asked, tried, shows(wo))), want: "keep member, keep member, drop surplus"},
		{name: "it is to leave, its node is down → it is a lost one like any other", in: degradedFor(time.Minute, served(2, member, all(once(time.Minute), evicted, away))), want: "keep last good, build away", after: 9 * time.Minute},
		{name: "it failed and is to leave → another one at once", in: degradedFor(0, served(2, member, all(once(time.Minute), evicted))), want: "keep last good, build awaited", add: "count"},
		{name: "it is being rebuilt and is to leave → first enough copies, then it moves", in: degradedFor(0, served(2, member, all(once(long), evicted, asked, tried, shows(wo)))), want: "keep last good, build rebuilding"},
		{name: "one is to leave, another one failed → the count comes first", in: degradedFor(0, served(2, all(member, evicted), once(time.Minute))), want: "keep last good, build awaited"},
		{name: "one is to leave, another member is unsettled → none is made yet", in: degradedFor(0, served(2, all(member, evicted), all(member, shows(failed)))), want: "keep last good, keep unsettled"},
		{name: "the local one is to leave → it goes when its place is filled, and none comes back there", in: usedOn("a", served(2, all(member, evicted), member, member)), want: "drop evicted, keep member, keep member"},
		{name: "one is to leave and the one in its place is being copied → none local before that", in: usedOn("d", served(2, member, all(member, evicted), all(fresh, asked, tried, shows(wo)))), want: "keep member, keep evicting, build rebuilding"},
		{name: "one is to leave and none is local → the eviction comes first", in: usedOn("d", served(2, member, all(member, evicted))), want: "keep member, keep evicting", add: "evict r2"},
		{name: "rebuilds are off → it stays", in: withoutRebuilds(served(2, member, all(member, evicted))), want: "keep member, keep evicting"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			target := targetFor(tc.in)
			copies, add := shown(tc.in, target)
			assert.Equal(t, tc.want, copies)
			assert.Equal(t, tc.add, add, "one copy more")
			if tc.after != 0 {
				assert.Equal(t, tc.after, target.After, "looks again")
			}
		})
	}
}
