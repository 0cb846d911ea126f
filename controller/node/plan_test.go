package node

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/longhorn-lep/longhorn-manager/disk"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/scheduler"
	"github.com/longhorn-lep/longhorn-manager/types"
)

const (
	gib   = build.GiB
	mib   = 1 << 20
	uuid1 = "11111111-1111-4111-8111-111111111111"
	uuid2 = "22222222-2222-4222-8222-222222222222"
)

// found is the record of a healthy disk of 100 GiB, like disk-1 in build.ReadyNode.
func found(changes ...func(*disk.Record)) disk.Record {
	config := disk.NewConfig("disk-1", uuid1)
	config.Claim = 1
	r := disk.Record{
		Name: "disk-1", Path: "/var/lib/longhorn", Exists: true, DeviceID: 1, FSType: "ext4", FSID: "abc",
		StorageMaximum: 100 * gib, StorageAvailable: 100 * gib, Config: &config,
	}
	for _, change := range changes {
		change(&r)
	}
	return r
}

func available(bytes int64) func(*disk.Record) {
	return func(r *disk.Record) { r.StorageAvailable = bytes }
}

func withoutFile(r *disk.Record) { r.Config, r.ConfigErr = nil, disk.ErrConfigMissing }

// input is a node that was ready with disk-1, and finds it again.
func input(changes ...func(*Input)) Input {
	in := Input{
		Node:     build.ReadyNode("node-1", uuid1),
		KubeNode: build.KubeNode("node-1"),
		Records:  map[string]disk.Record{"disk-1": found()},
		Settings: scheduler.Settings{MinimalAvailablePercent: 25, OverProvisioningPercent: 100},
		Claims:   map[string]Claim{"disk-1": {Held: true}},
	}
	for _, change := range changes {
		change(&in)
	}
	return in
}

func recordOf(r disk.Record) func(*Input) { return func(in *Input) { in.Records[r.Name] = r } }

// markedAway is a node that is not ready for the reason given, or ready again, after the leader has marked its disk.
func markedAway(reason string) func(*Input) {
	return func(in *Input) {
		ready := longhorn.Condition{Type: "Ready", Status: "True"}
		if reason != "" {
			ready = longhorn.Condition{Type: "Ready", Status: "False", Reason: reason}
		}
		in.Node.Status.Conditions[0] = ready
		in.Node.Status.DiskStatus, _ = markAway("node-1", in.Node.Status.DiskStatus, testutil.Now)
	}
}

// summary has the values that a case checks: the disk's two conditions as status/reason, its UUID, and its figures in
// GiB.
type summary struct {
	ready, schedulable            string
	uuid                          string
	maximum, available, scheduled float64
	replicas                      map[string]int64
}

func summarize(d longhorn.DiskStatus) summary {
	text := func(conditionType string) string {
		c := types.FindCondition(d.Conditions, conditionType)
		return strings.TrimSuffix(string(c.Status)+"/"+c.Reason, "/")
	}
	return summary{
		ready: text(types.ConditionReady), schedulable: text(types.ConditionSchedulable), uuid: d.DiskUUID,
		maximum: float64(d.StorageMaximum) / gib, available: float64(d.StorageAvailable) / gib,
		scheduled: float64(d.StorageScheduled) / gib, replicas: d.ScheduledReplica,
	}
}

var diskCases = []struct {
	name    string
	in      Input
	want    summary
	create  []string
	flipped []string
}{
	{
		name: "known disk found again → ready, with its figures",
		in:   input(),
		want: summary{ready: "True", schedulable: "True", uuid: uuid1, maximum: 100, available: 100, replicas: map[string]int64{}},
	},
	{
		name: "replicas on the disk → counted at full size, those of other disks not",
		in: input(func(in *Input) {
			in.Replicas = []*longhorn.Replica{
				build.PlacedReplica("a", "vol", "node-1", uuid1),
				build.PlacedReplica("b", "big", "node-1", uuid1, func(r *longhorn.Replica) { r.Spec.VolumeSize = 2 * gib }),
				build.PlacedReplica("c", "vol", "node-1", uuid2),
			}
		}),
		want: summary{
			ready: "True", schedulable: "True", uuid: uuid1, maximum: 100, available: 100, scheduled: 3,
			replicas: map[string]int64{"a": gib, "b": 2 * gib},
		},
	},
	{
		name: "new disk without a UUID file → to be made, not ready yet",
		in: input(func(in *Input) { in.Node.Status.DiskStatus = nil },
			recordOf(found(withoutFile))),
		want:   summary{ready: "False/NoDiskInfo", schedulable: "False/DiskNotReady", replicas: map[string]int64{}},
		create: []string{"disk-1"}, flipped: []string{"Ready", "Schedulable"},
	},
	{
		name:    "new disk with a UUID file → accepted with that UUID",
		in:      input(func(in *Input) { in.Node.Status.DiskStatus = nil }),
		want:    summary{ready: "True", schedulable: "True", uuid: uuid1, maximum: 100, available: 100, replicas: map[string]int64{}},
		flipped: []string{"Ready", "Schedulable"},
	},
	{
		name:    "known disk without its UUID file → not ready, UUID kept, nothing made",
		in:      input(recordOf(found(withoutFile))),
		want:    summary{ready: "False/DiskFilesystemChanged", schedulable: "False/DiskNotReady", uuid: uuid1, replicas: map[string]int64{}},
		flipped: []string{"Ready", "Schedulable"},
	},
	{
		name: "known disk, its claim refused → not ready for that reason, UUID kept",
		in: input(func(in *Input) {
			in.Claims = map[string]Claim{"disk-1": {Reason: "DuplicateUUID", Gist: "another has it"}}
		}),
		want:    summary{ready: "False/DuplicateUUID", schedulable: "False/DiskNotReady", uuid: uuid1, replicas: map[string]int64{}},
		flipped: []string{"Ready", "Schedulable"},
	},
	{
		name: "new disk, its claim refused → not ready, no UUID recorded",
		in: input(func(in *Input) {
			in.Node.Status.DiskStatus = nil
			in.Claims = map[string]Claim{"disk-1": {Reason: "DuplicateUUID", Gist: "another has it"}}
		}),
		want:    summary{ready: "False/DuplicateUUID", schedulable: "False/DiskNotReady", replicas: map[string]int64{}},
		flipped: []string{"Ready", "Schedulable"},
	},
	{
		name:    "claim not asked for → not ready",
		in:      input(func(in *Input) { in.Claims = nil }),
		want:    summary{ready: "False/NoDiskInfo", schedulable: "False/DiskNotReady", uuid: uuid1, replicas: map[string]int64{}},
		flipped: []string{"Ready", "Schedulable"},
	},
	{
		name:    "claim held, but the directory is not the disk → the directory's reason",
		in:      input(recordOf(found(withoutFile))),
		want:    summary{ready: "False/DiskFilesystemChanged", schedulable: "False/DiskNotReady", uuid: uuid1, replicas: map[string]int64{}},
		flipped: []string{"Ready", "Schedulable"},
	},
	{
		name: "marked by the leader, node not ready → the conditions are left alone, not the figures",
		in:   input(markedAway("KubernetesNodeNotReady"), recordOf(found(available(50*gib)))),
		want: summary{ready: "False/NodeNotReady", schedulable: "False/NodeNotReady", uuid: uuid1, maximum: 100, available: 50, replicas: map[string]int64{}},
	},
	{
		name: "marked by the leader, the kubelet back but not the daemon's pod → left alone",
		in:   input(markedAway("ManagerPodDown")),
		want: summary{ready: "False/NodeNotReady", schedulable: "False/NodeNotReady", uuid: uuid1, maximum: 100, available: 100, replicas: map[string]int64{}},
	},
	{
		name:    "marked by the leader, node ready again → judged again",
		in:      input(markedAway("")),
		want:    summary{ready: "True", schedulable: "True", uuid: uuid1, maximum: 100, available: 100, replicas: map[string]int64{}},
		flipped: []string{"Ready", "Schedulable"},
	},
	{
		name:    "marked by the leader, now only under pressure → judged again",
		in:      input(markedAway("KubernetesNodePressure")),
		want:    summary{ready: "True", schedulable: "True", uuid: uuid1, maximum: 100, available: 100, replicas: map[string]int64{}},
		flipped: []string{"Ready", "Schedulable"},
	},
	{
		name: "node not ready, not marked by the leader → judged",
		in: input(func(in *Input) {
			in.Node.Status.Conditions[0] = longhorn.Condition{Type: "Ready", Status: "False", Reason: "KubernetesNodeNotReady"}
		}),
		want: summary{ready: "True", schedulable: "True", uuid: uuid1, maximum: 100, available: 100, replicas: map[string]int64{}},
	},
	{
		name:    "directory unreadable → not ready, UUID kept",
		in:      input(recordOf(found(func(r *disk.Record) { r.Err = errors.New("i/o error") }))),
		want:    summary{ready: "False/NoDiskInfo", schedulable: "False/DiskNotReady", uuid: uuid1, replicas: map[string]int64{}},
		flipped: []string{"Ready", "Schedulable"},
	},
	{
		name:    "directory of replicas deleted → not ready, UUID kept",
		in:      input(recordOf(found(func(r *disk.Record) { r.ReplicasErr = disk.ErrReplicasMissing }))),
		want:    summary{ready: "False/ReplicasDirectoryMissing", schedulable: "False/DiskNotReady", uuid: uuid1, replicas: map[string]int64{}},
		flipped: []string{"Ready", "Schedulable"},
	},
	{
		name: "found, but the data plane gets no answer → not ready, UUID kept",
		in: input(func(in *Input) {
			in.DataPlane.HangingDisks = map[string]string{"/var/lib/longhorn": "the disk has not answered since …"}
		}),
		want:    summary{ready: "False/DiskNotResponding", schedulable: "False/DiskNotReady", uuid: uuid1, replicas: map[string]int64{}},
		flipped: []string{"Ready", "Schedulable"},
	},
	{
		name: "the data plane gets no answer of another disk → ready",
		in: input(func(in *Input) {
			in.DataPlane.HangingDisks = map[string]string{"/mnt/d2": "the disk has not answered since …"}
		}),
		want: summary{ready: "True", schedulable: "True", uuid: uuid1, maximum: 100, available: 100, replicas: map[string]int64{}},
	},
	{
		name:    "full up to the minimum → ready, not schedulable",
		in:      input(recordOf(found(available(25 * gib)))),
		want:    summary{ready: "True", schedulable: "False/DiskPressure", uuid: uuid1, maximum: 100, available: 25, replicas: map[string]int64{}},
		flipped: []string{"Schedulable"},
	},
	{
		name: "promised beyond what is not reserved → not schedulable",
		in: input(func(in *Input) {
			spec := in.Node.Spec.Disks["disk-1"]
			spec.StorageReserved = 99*gib + 1
			in.Node.Spec.Disks["disk-1"] = spec
			in.Replicas = []*longhorn.Replica{build.PlacedReplica("a", "vol", "node-1", uuid1)}
		}),
		want: summary{
			ready: "True", schedulable: "False/DiskPressure", uuid: uuid1, maximum: 100, available: 100, scheduled: 1,
			replicas: map[string]int64{"a": gib},
		},
		flipped: []string{"Schedulable"},
	},
	{
		name: "free space changed by less than 1 % → the old figure stays",
		in:   input(recordOf(found(available(100*gib - 1000*mib)))),
		want: summary{ready: "True", schedulable: "True", uuid: uuid1, maximum: 100, available: 100, replicas: map[string]int64{}},
	},
	{
		name: "free space changed by 1 % → the new figure",
		in:   input(recordOf(found(available(99 * gib)))),
		want: summary{ready: "True", schedulable: "True", uuid: uuid1, maximum: 100, available: 99, replicas: map[string]int64{}},
	},
	{
		name: "free space changed little, across the minimum → the new figure",
		in: input(func(in *Input) {
			d := in.Node.Status.DiskStatus["disk-1"]
			d.StorageAvailable = 25*gib + 512*mib
			in.Node.Status.DiskStatus["disk-1"] = d
		}, recordOf(found(available(25*gib)))),
		want:    summary{ready: "True", schedulable: "False/DiskPressure", uuid: uuid1, maximum: 100, available: 25, replicas: map[string]int64{}},
		flipped: []string{"Schedulable"},
	},
	{
		name: "file system grown → the new figures, however little free space changed",
		in:   input(recordOf(found(available(100*gib+512*mib), func(r *disk.Record) { r.StorageMaximum = 101 * gib }))),
		want: summary{ready: "True", schedulable: "True", uuid: uuid1, maximum: 101, available: 100.5, replicas: map[string]int64{}},
	},
}

func TestThePlanOfOneDisk(t *testing.T) {
	for _, c := range diskCases {
		t.Run(c.name, func(t *testing.T) {
			before := c.in.Node.DeepCopy()
			p := plan(c.in, testutil.Now)
			assert.Equal(t, c.want, summarize(p.Status.DiskStatus["disk-1"]))
			assert.Equal(t, c.create, p.CreateConfigs, "UUID files to make")
			var flipped []string
			for _, f := range p.Flipped {
				if f.Message != "Kubernetes node node-1 is not cordoned" { // the node's own, in TestThePlanOfTheNode
					flipped = append(flipped, f.Type)
				}
			}
			assert.Equal(t, c.flipped, flipped)
			assert.Equal(t, before, c.in.Node, "the plan changed its input")
			again := c.in
			again.Node = c.in.Node.DeepCopy()
			again.Node.Status = p.Status
			second := plan(again, testutil.Now.Add(60e9))
			assert.Equal(t, p.Status, second.Status)
			assert.Empty(t, second.Flipped, "planned again, at rest: the status changes")
		})
	}
}

func TestThePlanOfTheNode(t *testing.T) {
	cases := []struct {
		name         string
		in           Input
		schedulable  longhorn.ConditionStatus
		reason       string
		region, zone string
		disks        []string
	}{
		{name: "Kubernetes node in order → schedulable", in: input(), schedulable: "True", disks: []string{"disk-1"}},
		{
			name:        "Kubernetes node cordoned → not schedulable",
			in:          input(func(in *Input) { in.KubeNode.Spec.Unschedulable = true }),
			schedulable: "False", reason: "KubernetesNodeCordoned", disks: []string{"disk-1"},
		},
		{
			name: "Kubernetes node cordoned, and the setting lets it have copies → schedulable",
			in: input(func(in *Input) {
				in.KubeNode.Spec.Unschedulable = true
				in.CordonedTakesCopies = true
			}),
			schedulable: "True", disks: []string{"disk-1"},
		},
		{
			name: "labels of the place → region and zone",
			in: input(func(in *Input) {
				in.KubeNode.Labels = map[string]string{"topology.kubernetes.io/region": "r", "topology.kubernetes.io/zone": "z"}
			}),
			schedulable: "True", region: "r", zone: "z", disks: []string{"disk-1"},
		},
		{
			name: "Kubernetes node not known → all stays as it was",
			in: input(func(in *Input) {
				in.KubeNode = nil
				in.Node.Status.Region, in.Node.Status.Zone = "r", "z"
				in.Node.Status.Conditions[1] = longhorn.Condition{Type: "Schedulable", Status: "False", Reason: "KubernetesNodeCordoned"}
			}),
			schedulable: "False", reason: "KubernetesNodeCordoned", region: "r", zone: "z", disks: []string{"disk-1"},
		},
		{
			name: "disk removed from the spec → its status is gone, the other stays",
			in: input(func(in *Input) {
				in.Node.Status.DiskStatus["disk-0"] = longhorn.DiskStatus{DiskUUID: uuid2}
			}),
			schedulable: "True", disks: []string{"disk-1"},
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			ready := types.FindCondition(c.in.Node.Status.Conditions, types.ConditionReady)
			p := plan(c.in, testutil.Now)
			got := types.FindCondition(p.Status.Conditions, types.ConditionSchedulable)
			assert.Equal(t, c.schedulable, got.Status)
			assert.Equal(t, c.reason, got.Reason)
			assert.Equal(t, c.region, p.Status.Region)
			assert.Equal(t, c.zone, p.Status.Zone)
			var disks []string
			for name := range p.Status.DiskStatus {
				disks = append(disks, name)
			}
			assert.Equal(t, c.disks, disks)
			assert.Equal(t, ready, types.FindCondition(p.Status.Conditions, types.ConditionReady), "the leader's condition Ready was touched")
		})
	}
}

func TestHolderGone(t *testing.T) {
	cases := []struct {
		name string
		node *longhorn.Node
		disk string
		gone bool
	}{
		{"no such node → gone", nil, "disk-1", true},
		{"its disk of that name, with that UUID → there", build.ReadyNode("node-2", uuid1), "disk-1", false},
		{"the UUID recorded in upper case → there", build.ReadyNode("node-2", strings.ToUpper(uuid1)), "disk-1", false},
		{"no disk of that name in the spec → gone", build.ReadyNode("node-2", uuid1), "disk-2", true},
		{"removed from the spec, its status still there → gone", build.ReadyNode("node-2", uuid1, func(n *longhorn.Node) { n.Spec.Disks = nil }), "disk-1", true},
		{"another UUID recorded → gone", build.ReadyNode("node-2", uuid2), "disk-1", true},
		{"no UUID recorded yet → there", build.Node("node-2", build.WithDisk("disk-1", "/x")), "disk-1", false},
		{"node down → there", build.ReadyNode("node-2", uuid1, func(n *longhorn.Node) {
			n.Status.Conditions[0] = longhorn.Condition{Type: "Ready", Status: "False", Reason: "KubernetesNodeNotReady"}
		}), "disk-1", false},
		{"Kubernetes node gone, the Longhorn node not yet → there", build.ReadyNode("node-2", uuid1, func(n *longhorn.Node) {
			n.Status.Conditions[0] = longhorn.Condition{Type: "Ready", Status: "False", Reason: "KubernetesNodeGone"}
		}), "disk-1", false},
		{"disk not ready → there", build.ReadyNode("node-2", uuid1, func(n *longhorn.Node) {
			n.Status.DiskStatus["disk-1"].Conditions[0].Status = "False"
		}), "disk-1", false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			assert.Equal(t, c.gone, holderGone(c.node, c.disk, uuid1))
		})
	}
}

func TestMessagesNameDiskPathAndNode(t *testing.T) {
	p := plan(input(recordOf(found(available(25*gib)))), testutil.Now)
	conditions := p.Status.DiskStatus["disk-1"].Conditions
	want := "Disk disk-1(/var/lib/longhorn) on node node-1 is ready"
	got := types.FindCondition(conditions, types.ConditionReady).Message
	assert.Equal(t, want, got)
	want = "Disk disk-1(/var/lib/longhorn) on the node node-1 is not schedulable for more replica; "
	got = types.FindCondition(conditions, types.ConditionSchedulable).Message
	assert.True(t, strings.HasPrefix(got, want), "Schedulable: %q, want it to begin with %q", got, want)
}

func TestACordonFlipsSchedulable(t *testing.T) {
	p := plan(input(func(in *Input) {
		in.KubeNode = build.KubeNode("node-1", func(n *corev1.Node) { n.Spec.Unschedulable = true })
	}), testutil.Now)
	require.Len(t, p.Flipped, 1)
	assert.Equal(t, "Schedulable", p.Flipped[0].Type)
	assert.Equal(t, "2030-01-02T03:04:05Z", p.Flipped[0].LastTransitionTime)
}

// While a disk that lies on a volume is not accepted, the scheduler must still know that it lies on that volume.
func TestADiskThatIsNotAcceptedStillLiesOnItsVolume(t *testing.T) {
	in := input(recordOf(found(func(r *disk.Record) { r.OnVolume, r.ReadOnly = "b", true })), func(in *Input) {
		in.DataPlane = DataPlane{Answers: true, DisksOnVolumes: true}
		s := in.Node.Status.DiskStatus["disk-1"]
		s.OnVolume = "b"
		in.Node.Status.DiskStatus["disk-1"] = s
	})
	v := diskVerdicts(in)["disk-1"]
	s := diskStatus(in, "disk-1", v, testutil.Now)
	assert.False(t, v.Accept)
	assert.Equal(t, "b", s.OnVolume)
}
