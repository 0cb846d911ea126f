package copies

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/scheduler"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// diskUse creates disks of a node of 100 GiB each. "d1=90" is used to 90 %. Their UUIDs are disk-<name>.
func diskUse(node, use string) *longhorn.Node {
	n := build.ReadyNode(node, "disk-none")
	n.Spec.Disks, n.Status.DiskStatus = nil, nil
	for _, text := range strings.Fields(use) {
		var percent int64
		name, figure, _ := strings.Cut(text, "=")
		_, _ = fmt.Sscan(figure, &percent)
		build.WithDisk(name, "/"+name)(n)
		build.WithDiskStatus(name, "disk-"+name, func(d *longhorn.DiskStatus) {
			d.StorageMaximum, d.StorageAvailable = 100*gib, (100-percent)*gib
		})(n)
	}
	return n
}

func olderBy(d time.Duration) option {
	return func(_ *Facts, r *longhorn.Replica) { r.CreationTimestamp = metav1.Time{Time: now.Add(-d)} }
}

func pressing(percent int64, in Facts) Facts {
	in.AutoBalance, in.RebuildLimit, in.DiskPressure = best, 5, percent
	return in
}

func TestWhichReplicasAreOnADiskThatIsTooFull(t *testing.T) {
	one := served(1, all(member, onDisk("disk-d1")))
	beside := func(newer string) Facts {
		return served(1, all(member, onDisk("disk-d1"), olderBy(time.Hour)), all(member, onNode("a"), onDisk(newer), olderBy(time.Minute)))
	}
	disabled := func(in Facts) Facts { in.AutoBalance = least; return in }
	for _, tc := range []struct {
		name string
		in   Facts
		use  string
		want string
	}{
		{"below the percentage → it stays", pressing(90, one), "d1=89", ""},
		{"at the percentage → it leaves", pressing(90, one), "d1=90", "r1"},
		{"the setting is 0 → it stays", pressing(0, one), "d1=99", ""},
		{"balance is not best-effort → it stays", disabled(pressing(90, one)), "d1=99", ""},
		{"its size is not known → it stays", pressing(90, one), "d2=99", ""},
		{"two of a node → the older first", pressing(90, beside("disk-d2")), "d1=95 d2=95", "r1"},
		{"one of two of a node → that one, though it is younger", pressing(90, beside("disk-d2")), "d1=10 d2=95", "r2"},
		{"a move has begun, and the disk is a little emptier → it goes on", pressing(90, beside("disk-d2")), "d1=85 d2=10", "r1"},
		{"a move has begun, and the disk is much emptier → it is not needed", pressing(90, beside("disk-d2")), "d1=84 d2=10", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			for name := range PressedOf(tc.in, []*longhorn.Node{diskUse("a", tc.use)}) {
				got = append(got, name)
			}
			assert.Equal(t, tc.want, strings.Join(got, " "))
		})
	}
}

func TestWhichDisksAreUnsettled(t *testing.T) {
	healthy := func(d time.Duration) option {
		return func(_ *Facts, r *longhorn.Replica) { r.Spec.HealthyAt = ago(d) }
	}
	for name, tc := range map[string]struct {
		replica option
		want    bool
	}{
		"good for long":                  {all(olderBy(time.Hour), healthy(time.Hour)), false},
		"good since a moment ago":        {all(olderBy(time.Hour), healthy(59*time.Second)), true},
		"being copied":                   {olderBy(time.Hour), true},
		"of a volume that never started": {all(olderBy(time.Hour), notStarted), false},
		"made a moment ago":              {all(olderBy(time.Second), notStarted), true},
		"placed, and not made yet":       {notStarted, true},
		"failed":                         {all(olderBy(time.Hour), failedFor(time.Hour)), false},
	} {
		t.Run(name, func(t *testing.T) {
			in := served(1, tc.replica)
			assert.Equal(t, tc.want, UnsettledDisks(in.Replicas, now)["disk-a"])
		})
	}
}

// fullWorld is one node or a few. Volumes fill their disks. The figures in the nodes' statuses are up to half a minute
// old.
type fullWorld struct {
	nodes   []*longhorn.Node
	volumes []Facts
	others  map[string]int64 // GiB in use by something else, by disk UUID
	moves   int
}

func (w *fullWorld) replicas() (list []*longhorn.Replica) {
	for _, in := range w.volumes {
		list = append(list, in.Replicas...)
	}
	return list
}

// scan updates the statuses.
func (w *fullWorld) scan() {
	used := map[string]int64{}
	for uuid, g := range w.others {
		used[uuid] = g * gib
	}
	for _, in := range w.volumes {
		for _, r := range in.Replicas {
			used[r.Spec.DiskID] += in.Volume.Status.ActualSize
		}
	}
	for _, n := range w.nodes {
		for name, d := range n.Status.DiskStatus {
			d.StorageAvailable = d.StorageMaximum - used[d.DiskUUID]
			n.Status.DiskStatus[name] = d
		}
	}
}

// turn runs the next step of one volume, which takes a second.
func (w *fullWorld) turn(t *testing.T, i int, clock time.Time) bool {
	t.Helper()
	in := &w.volumes[i]
	count := in.Volume.Spec.NumberOfReplicas
	o := scheduler.Objects{Nodes: w.nodes, Replicas: w.replicas()}
	for _, n := range w.nodes {
		o.InstanceManagers = append(o.InstanceManagers, build.RunningInstanceManager(n.Name, "10.0.0.1", "u"))
	}
	settings := in.Cluster.Settings
	in.Now, in.Cluster = clock, o.Snapshot(in.Volume.Name, settings)
	in.Pressed, in.Unsettled = PressedOf(*in, o.Nodes), UnsettledDisks(o.Replicas, in.Now)
	before, size := len(in.Replicas), in.Volume.Status.ActualSize
	did := obey(t, in)
	in.Volume.Status.ActualSize = size
	for _, r := range in.Replicas {
		r.Status.AllocatedBytes = size
		if r.CreationTimestamp.IsZero() {
			r.CreationTimestamp = metav1.Time{Time: clock}
		}
	}
	if len(in.Replicas) > before {
		w.moves++
	}
	require.LessOrEqual(t, len(in.Replicas), count+1)
	require.GreaterOrEqual(t, StateOf(*in).Healthy(), count)
	return did
}

// rest runs the volumes until none has had anything to do for half an hour.
func (w *fullWorld) rest(t *testing.T) {
	t.Helper()
	clock := now
	for still, steps := 0, 0; still < 180*len(w.volumes); steps++ {
		require.Less(t, steps, 40000, "it never comes to rest")
		if steps%30 == 0 {
			w.scan()
		}
		if still++; w.turn(t, steps%len(w.volumes), clock) {
			still = 0
		}
		clock = clock.Add(time.Second)
		if still > 30 {
			clock = clock.Add(9 * time.Second)
		}
	}
}

func (w *fullWorld) with(name string, size int64, in Facts) {
	in.Volume.Name, in.Volume.Labels, in.Volume.Status.ActualSize = name, map[string]string{types.LabelVolume: name}, size*gib
	for _, r := range in.Replicas {
		r.Spec.VolumeName, r.Labels[types.LabelVolume], r.Status.AllocatedBytes = name, name, size*gib
	}
	in.Cluster.Settings.OverProvisioningPercent = 1000
	w.volumes = append(w.volumes, in)
}

func TestCopiesLeaveADiskThatIsTooFull(t *testing.T) {
	at := func(node, disk string) option {
		return all(member, onNode(node), onDisk("disk-"+disk), olderBy(time.Hour))
	}
	hardZones := func(in Facts) Facts {
		in.Cluster.Settings.ZoneSoftAntiAffinity = false
		return in
	}
	strict := func(in Facts) Facts {
		in.Volume.Spec.DataLocality = longhorn.DataLocalityStrictLocal
		return in
	}
	for _, tc := range []struct {
		name  string
		in    Facts
		size  int64
		use   string // of node a, by something else; e1 is the disk of node b
		want  string
		moves int
	}{
		{"another disk has room → it goes there", pressing(90, served(1, at("a", "d1"))), 10, "d1=80 d2=10", "d2", 1},
		{"the disk is less full → it stays", pressing(90, served(1, at("a", "d1"))), 10, "d1=79 d2=10", "d1", 0},
		{"the other disk would be as full → it stays", pressing(90, served(1, at("a", "d1"))), 10, "d1=80 d2=80", "d1", 0},
		{"the other disk would be as full, and replicas may share a node → it stays", softNodes(pressing(90, served(1, at("a", "d1")))), 10, "d1=80 d2=80", "d1", 0},
		{"as full, with a copy elsewhere, and replicas may share a node → it stays", softNodes(pressing(90, usedOn("a", served(2, at("a", "d1"), at("b", "e1"))))), 10, "d1=80 d2=80", "d1 e1", 0},
		{"the other disk would be just less full → it goes there", pressing(90, served(1, at("a", "d1"))), 10, "d1=80 d2=79", "d2", 1},
		{"the other of two copies is elsewhere → it stays there", pressing(90, served(2, at("a", "d1"), at("b", "e1"))), 10, "d1=80 d2=10", "d2 e1", 1},
		{"it is where the volume is used → it goes, though another node has more room", pressing(90, usedOn("a", served(2, at("a", "d1"), at("b", "e1")))), 10, "d1=80 d2=70", "d2 e1", 1},
		{"the volume is used elsewhere → it goes all the same", pressing(90, usedOn("b", served(2, at("a", "d1"), at("b", "e1")))), 10, "d1=80 d2=10", "d2 e1", 1},
		{"zones must differ → it goes there", hardZones(pressing(90, served(2, at("a", "d1"), at("b", "e1")))), 10, "d1=80 d2=10", "d2 e1", 1},
		{"strict-local → it goes there", strict(pressing(90, usedOn("a", served(1, at("a", "d1"))))), 10, "d1=80 d2=10", "d2", 1},
		{"rebuilds are off → it stays", withoutRebuilds(pressing(90, served(1, at("a", "d1")))), 10, "d1=80 d2=10", "d1", 0},
		{"a copy on a third node would be as good → it stays on its node", pressing(90, served(2, at("a", "d1"), at("b", "e1"))), 10, "d1=80 d2=80 c:f1=0", "d1 e1", 0},
		{"two copies on full disks of one node → one goes after the other", softNodes(pressing(60, served(3, at("a", "d1"), at("a", "d2"), at("b", "e1")))), 10, "d1=70 d2=70 d3=10 d4=10", "d3 d4 e1", 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := &fullWorld{others: map[string]int64{}}
			zones := map[string]string{"a": "1", "b": "2", "c": "1"}
			ofA, ofC, _ := strings.Cut(tc.use, " c:")
			for node, use := range map[string]string{"a": ofA, "b": "e1=10", "c": ofC} {
				n := diskUse(node, use)
				n.Status.Zone = zones[node]
				w.nodes = append(w.nodes, n)
				for _, text := range strings.Fields(use) {
					var g int64
					name, figure, _ := strings.Cut(text, "=")
					_, _ = fmt.Sscan(figure, &g)
					w.others["disk-"+name] = g
				}
			}
			w.with("v", tc.size, tc.in)
			w.rest(t)
			assert.Equal(t, tc.want, disksOf(w.volumes[0]))
			assert.Equal(t, tc.moves, w.moves)
			assert.Empty(t, conditionOf(w.volumes[0]).Reason, "that there is no other disk is no fault")
		})
	}
}

// There are many volumes on the disks of one node, and figures that are half a minute old. No disk is filled to the
// percentage by moves, and no copy moves twice. At the end, no copy is on a disk that is too full if another disk
// could take it.
func TestMovesOffFullDisksComeToRest(t *testing.T) {
	if testing.Short() {
		t.Skip("the simulation of 25 clusters takes seconds: not with -short")
	}
	const percent = 60
	for seed := range uint64(25) {
		rng := rand.New(rand.NewPCG(seed, 5))
		w := &fullWorld{others: map[string]int64{}}
		n := diskUse("a", "d1=0 d2=0 d3=0")
		w.nodes = append(w.nodes, n, diskUse("b", "e1=0 e2=0"))
		count := 3 + rng.IntN(8)
		for i := range count {
			disk := "disk-" + []string{"d1", "d1", "d2", "d3"}[rng.IntN(4)]
			in := served(1, all(member, onNode("a"), onDisk(disk), olderBy(time.Hour)))
			if seed%2 == 1 {
				in = softNodes(in)
			}
			in.Replicas[0].Name = fmt.Sprintf("r%02d", i)
			renamed(&in, "r1", in.Replicas[0].Name)
			in.Names[0].Replica = fmt.Sprintf("n%02d", i)
			w.with(fmt.Sprintf("v%02d", i), int64(1+rng.IntN(12)), pressing(percent, in))
		}
		w.others["disk-d1"], w.others["disk-d2"] = rng.Int64N(50), rng.Int64N(50)
		w.scan()
		before := map[string]bool{}
		for _, d := range n.Status.DiskStatus {
			before[d.DiskUUID] = scheduler.UsesAtLeast(percent, d.StorageMaximum, d.StorageAvailable)
		}
		w.rest(t)
		w.scan()
		require.LessOrEqual(t, w.moves, count, "seed %d", seed)
		for _, d := range n.Status.DiskStatus {
			full := scheduler.UsesAtLeast(percent, d.StorageMaximum, d.StorageAvailable)
			require.False(t, full && !before[d.DiskUUID], "seed %d: disk %s has become too full", seed, d.DiskUUID)
			if !full {
				continue
			}
			for _, in := range w.volumes {
				for _, o := range n.Status.DiskStatus {
					fits := !scheduler.UsesAtLeast(percent, o.StorageMaximum, o.StorageAvailable-in.Volume.Status.ActualSize)
					require.False(t, in.Replicas[0].Spec.DiskID == d.DiskUUID && fits, "seed %d: %s could go from %s to %s", seed, in.Volume.Name, d.DiskUUID, o.DiskUUID)
				}
			}
		}
	}
}

// renamed changes the name of the only replica of a volume, also in its engine.
func renamed(in *Facts, was, name string) {
	e := in.Engine
	e.Status.Epoch.Members = []string{name}
	e.Status.ReplicaModeMap = map[string]longhorn.ReplicaMode{name: longhorn.ReplicaModeRW}
	for _, m := range []map[string]string{e.Spec.ReplicaAddressMap, e.Status.CurrentReplicaAddressMap} {
		m[name] = m[was]
		delete(m, was)
	}
}

// The claim that others see does not depend on the snapshot of the cluster, which they do not read for it.
func TestAMoveOffAFullDiskIsClaimed(t *testing.T) {
	in := pressing(90, served(1, all(member, onDisk("disk-d1"), olderBy(time.Hour)), all(fresh, onNode("a"), onDisk("disk-d2"), olderBy(time.Second))))
	in.Pressed = PressedOf(in, []*longhorn.Node{diskUse("a", "d1=95 d2=10")})
	in.Cluster = scheduler.Snapshot{}
	assert.Equal(t, []string{"a"}, ClaimOf(in, false).Wants)
	in.Pressed = nil
	assert.Empty(t, ClaimOf(in, false).Wants)
	assert.Equal(t, whySurplus, targetFor(in).Copies["r2"].Why)
}
