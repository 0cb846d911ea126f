package inspect

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	testclock "k8s.io/utils/clock/testing"

	"github.com/longhorn-lep/longhorn-manager/controller/node"
	"github.com/longhorn-lep/longhorn-manager/disk"
	"github.com/longhorn-lep/longhorn-manager/explain"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	longhornfake "github.com/longhorn-lep/longhorn-manager/k8s/client/clientset/versioned/fake"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// cluster has node n1, whose disk is read-only, and volume v with one of two healthy replicas.
func cluster() (Cluster, *longhornfake.Clientset, *kubefake.Clientset) {
	n := build.ReadyNode("n1", "uuid-n1")
	d := n.Status.DiskStatus["disk-1"]
	d.Conditions, _ = types.SetCondition(d.Conditions, longhorn.Condition{
		Type: types.ConditionReady, Status: longhorn.ConditionFalse, Reason: disk.ReasonDiskReadOnly, Message: "its file system is read-only",
	}, at)
	n.Status.DiskStatus["disk-1"] = d
	v := build.Volume("v", func(v *longhorn.Volume) {
		v.Spec.NumberOfReplicas, v.Status.State, v.Status.Robustness, v.Status.CurrentNodeID = 2, longhorn.VolumeStateAttached, longhorn.VolumeRobustnessDegraded, "n1"
	})
	e := build.Engine("v", func(e *longhorn.Engine) {
		e.Spec.NodeID, e.Status.CurrentState = "n1", longhorn.InstanceStateRunning
		e.Status.Epoch = &longhorn.Epoch{Generation: 1, Counter: 1, Members: []string{"v-r-1"}}
		e.Status.ReplicaModeMap = map[string]longhorn.ReplicaMode{"v-r-1": longhorn.ReplicaModeRW}
	})
	ours := longhornfake.NewSimpleClientset(n, v, e, build.PlacedReplica("v-r-1", "v", "n1", "uuid-n1"), build.RunningInstanceManager("n1", "10.0.0.1", "p"))
	kube := kubefake.NewClientset(build.KubeNode("n1"), build.Pod("longhorn-manager-x", "n1"))
	return Cluster{Kube: kube, Longhorn: ours, Namespace: types.Namespace, Clock: testclock.NewFakePassiveClock(at)}, ours, kube
}

func TestStatusCountsAndTellsWhatIsWrong(t *testing.T) {
	c, _, _ := cluster()
	s, err := c.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	status := StatusOf(s)
	one := 1
	if want := []VolumeStatus{{Name: "v", State: "attached", Robustness: "degraded", Node: "n1", Size: build.GiB, GoodCopies: &one, Copies: 2}}; !reflect.DeepEqual(status.Volumes, want) {
		t.Errorf("the volumes are %+v, want %+v", status.Volumes, want)
	}
	if want := (NodeStatus{Name: "n1", Ready: true, Disks: 1}); len(status.Nodes) != 1 || status.Nodes[0] != want {
		t.Errorf("the nodes are %+v, want %+v", status.Nodes, want)
	}
	var out strings.Builder
	Printer{&out, DefaultWidth}.Status(status)
	for _, text := range []string{"n1     yes", "0/1     -      -      -\n", "v", "1/2", "1 GiB", "error       disk disk-1 of node n1 is read-only", "  warning   volume v has 1 of 2 healthy replicas", "kubectl longhorn explain NAME"} {
		if !strings.Contains(out.String(), text) {
			t.Errorf("the table lacks %q:\n%s", text, out.String())
		}
	}
}

func TestANodeIsSchedulableIfADiskTakesReplicas(t *testing.T) {
	condition := func(list []longhorn.Condition, name string) []longhorn.Condition {
		list, _ = types.SetCondition(list, longhorn.Condition{Type: name, Status: longhorn.ConditionFalse}, at)
		return list
	}
	onDisk := func(n *longhorn.Node, change func(*longhorn.DiskSpec, *longhorn.DiskStatus)) {
		spec, status := n.Spec.Disks["disk-1"], n.Status.DiskStatus["disk-1"]
		change(&spec, &status)
		n.Spec.Disks["disk-1"], n.Status.DiskStatus["disk-1"] = spec, status
	}
	for name, tc := range map[string]struct {
		change func(*longhorn.Node)
		want   bool
	}{
		"all allow it":               {func(*longhorn.Node) {}, true},
		"the node does not allow it": {func(n *longhorn.Node) { n.Spec.AllowScheduling = false }, false},
		"the node is being evicted":  {func(n *longhorn.Node) { n.Spec.EvictionRequested = true }, false},
		"the node is off":            {func(n *longhorn.Node) { n.Status.Conditions = condition(n.Status.Conditions, types.ConditionReady) }, false},
		"the node is cordoned": {func(n *longhorn.Node) {
			n.Status.Conditions = condition(n.Status.Conditions, types.ConditionSchedulable)
		}, false},
		"its only disk does not allow it": {func(n *longhorn.Node) {
			onDisk(n, func(d *longhorn.DiskSpec, _ *longhorn.DiskStatus) { d.AllowScheduling = false })
		}, false},
		"its only disk is being evicted": {func(n *longhorn.Node) {
			onDisk(n, func(d *longhorn.DiskSpec, _ *longhorn.DiskStatus) { d.EvictionRequested = true })
		}, false},
		"its only disk is full": {func(n *longhorn.Node) {
			onDisk(n, func(_ *longhorn.DiskSpec, s *longhorn.DiskStatus) {
				s.Conditions = condition(s.Conditions, types.ConditionSchedulable)
			})
		}, false},
		"a disk of two allows it": {func(n *longhorn.Node) {
			n.Spec.Disks["disk-2"], n.Status.DiskStatus["disk-2"] = longhorn.DiskSpec{}, n.Status.DiskStatus["disk-1"]
		}, true},
		"the only status is of a removed disk": {func(n *longhorn.Node) { delete(n.Spec.Disks, "disk-1") }, false},
	} {
		n := build.ReadyNode("n1", "uuid-n1")
		tc.change(n)
		assert.Equal(t, tc.want, nodeStatus(n).Schedulable, name)
	}
}

// TestStatusNamesVolumesByTheirClaims has two volumes of claims and one without, and a node that is not ready.
func TestStatusNamesVolumesByTheirClaims(t *testing.T) {
	long := strings.Repeat("postgres-data-", 3) + "0"
	names := []string{"pvc-5b0c2a9a-7c1e-4b0f-9d55-0b7f7a1f5d11", "pvc-0a4f3aa2-1c2a-4f57-9c11-8d0b2b7de6f1"}
	n := build.ReadyNode("n1", "uuid-n1")
	n.Status.Conditions, _ = types.SetCondition(n.Status.Conditions, longhorn.Condition{
		Type: types.ConditionReady, Status: longhorn.ConditionFalse, Reason: types.ReasonKubernetesNodeNotReady, Message: "m",
	}, at)
	s := &explain.Snapshot{
		Now: at, Namespace: types.Namespace, Nodes: []*longhorn.Node{n, build.ReadyNode("n2", "uuid-n2")},
		Volumes:  []*longhorn.Volume{claimedVolume(names[0], "zoo"), claimedVolume(names[1], long), build.Volume("archive")},
		Replicas: []*longhorn.Replica{build.PlacedReplica(names[0]+"-r-1", names[0], "n1", "uuid-n1")},
	}
	for _, v := range s.Volumes {
		v.Status.State, v.Status.Robustness = longhorn.VolumeStateDetached, longhorn.VolumeRobustnessUnknown
	}
	s.Volumes[0].Status.State, s.Volumes[0].Status.Robustness, s.Volumes[0].Status.CurrentNodeID = longhorn.VolumeStateAttached, longhorn.VolumeRobustnessDegraded, "n2"
	s.Engines = []*longhorn.Engine{build.Engine(names[0], func(e *longhorn.Engine) { e.Spec.NodeID = "n2" })}
	s.InstanceManagers = []*longhorn.InstanceManager{build.RunningInstanceManager("n1", "10.0.0.1", "p"), build.RunningInstanceManager("n2", "10.0.0.2", "q")}
	var out strings.Builder
	Printer{&out, DefaultWidth}.Status(StatusOf(s))
	lines := strings.Split(out.String(), "\n")
	start := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, "VOLUME") })
	assert.Equal(t, []string{
		"VOLUME                                             STATE      ROBUSTNESS   COPIES   SIZE    NODE",
		"archive                                            detached   unknown      0/3      1 GiB",
		"shop/" + long + "   detached   unknown      0/3      1 GiB",
		"shop/zoo                                           attached   degraded     0/3      1 GiB   n2",
	}, lines[start:start+4])
	assert.NotContains(t, strings.Join(lines[:start+4], "\n"), "pvc-", "the table has the short form")
	assert.Contains(t, out.String(), "error       node n1 is not ready")
	assert.Contains(t, out.String(), "  warning   volume shop/zoo ("+names[0]+") has 0 of 3 healthy replicas\n", "below its cause, with its whole name")
	assert.Contains(t, out.String(), "Indented problems probably follow from the problem above them.\n")

	out.Reset()
	Printer{&out, DefaultWidth}.WideStatus(StatusOf(s))
	assert.Regexp(t, `(?m)^VOLUME +STATE +ROBUSTNESS +COPIES +SIZE +NODE +NAME$`, out.String())
	assert.Regexp(t, `(?m)^shop/zoo +attached +degraded +0/3 +1 GiB +n2 +`+names[0]+`$`, out.String())
	assert.Regexp(t, `(?m)^archive +detached +unknown +0/3 +1 GiB +archive$`, out.String())

	out.Reset()
	found, err := explain.Volume(s, names[0])
	require.NoError(t, err)
	i := slices.IndexFunc(found, func(f explain.Finding) bool { return f.Reason == "Degraded" })
	Printer{&out, 1000}.Findings(s, "", found[i:i+1])
	assert.True(t, strings.HasPrefix(out.String(), "warning  volume shop/zoo ("+names[0]+") has 0 of 3 healthy replicas.\n"), out.String())
}

func TestAFindingIsPrintedWithWhyAndNext(t *testing.T) {
	c, _, _ := cluster()
	s, err := c.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found, err := explain.Disk(s, "", "disk-1")
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	Printer{&out, DefaultWidth}.Findings(s, "disk disk-1", found)
	for _, text := range []string{"error  disk disk-1 on node n1: ", "  why   its file system is read-only", "  next  ", "          dmesg"} {
		if !strings.Contains(out.String(), text) {
			t.Errorf("it lacks %q:\n%s", text, out.String())
		}
	}
	out.Reset()
	Printer{&out, DefaultWidth}.Findings(&explain.Snapshot{Unseen: []string{"pods"}}, "disk disk-2", nil)
	if want := "disk disk-2: no problems found in the objects that your account may read.\nYour account may not read pods: problems that only these show are not listed.\n"; out.String() != want {
		t.Errorf("of what is well it says %q, want %q", out.String(), want)
	}
}

func refuse(refusal error) clienttesting.ReactionFunc {
	return func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, refusal }
}

func TestWhatTheUserMayNotReadIsNamed(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no"))
	c, ours, kube := cluster()
	kube.PrependReactor("list", "pods", refuse(forbidden))
	s, err := c.Snapshot(t.Context())
	if err != nil || !slices.Equal(s.Unseen, []string{explain.ResourcePods, explain.ResourceUserPods}) {
		t.Errorf("without the right to list pods: %v, %v", s, err)
	}
	ours.PrependReactor("list", "*", refuse(forbidden))
	if _, err := c.Snapshot(t.Context()); err == nil || !strings.Contains(err.Error(), "may not list volumes.longhorn.io in namespace longhorn-system") {
		t.Errorf("without any right: %v", err)
	}
	c, ours, _ = cluster()
	ours.PrependReactor("list", "volumes", refuse(apierrors.NewNotFound(schema.GroupResource{}, "")))
	if _, err := c.Snapshot(t.Context()); err == nil || !strings.Contains(err.Error(), "the cluster has no resource volumes.longhorn.io") {
		t.Errorf("where nothing is installed: %v", err)
	}
	c, ours, _ = cluster()
	ours.PrependReactor("list", "replicas", refuse(errors.New("connection refused")))
	if _, err := c.Snapshot(t.Context()); err == nil || err.Error() != "list replicas.longhorn.io: connection refused" {
		t.Errorf("without an API server: %v", err)
	}
}

func TestTheDoctorTellsWhatANodeLacks(t *testing.T) {
	whole := func() NodeFacts {
		return NodeFacts{
			Node: "n1", Namespace: types.Namespace, Kernel: "6.12.3-1-generic", RootUser: true,
			Environment: node.Environment{RootMount: "shared:1", Devices: []string{"fuse", "loop-control"}, Filesystems: []string{"nfs4"}},
			DataPlane:   node.DataPlane{Answers: true, DeviceKind: node.DeviceKindNBD, DevicesKept: true},
			Disk:        disk.Record{Path: "/var/lib/longhorn", Exists: true, FSType: "ext4", StorageMaximum: 100 * build.GiB, StorageAvailable: 90 * build.GiB},
		}
	}
	for _, tc := range []struct {
		name     string
		change   func(f *NodeFacts)
		check    string
		severity explain.Severity
		message  string
		command  string
	}{
		{"an old kernel → too old", func(f *NodeFacts) { f.Kernel = "5.4.0-1" }, "Kernel", explain.Broken, "must be 5.9 or later", ""},
		{"a kernel of another name → a warning", func(f *NodeFacts) { f.Kernel = "next" }, "Kernel", explain.Warning, `"next"`, "uname -r"},
		{"no fuse → modules", func(f *NodeFacts) { f.Environment.Devices = nil }, types.ConditionKernelModulesLoaded, explain.Broken, "/dev/fuse", "modprobe -a fuse loop"},
		{"no mount propagation → a shared root", func(f *NodeFacts) { f.Environment.RootMount = "" }, types.ConditionMountPropagation, explain.Warning, "does not see", "mount --make-rshared /"},
		{"no NFS client → for information", func(f *NodeFacts) { f.Environment.Filesystems = nil }, types.ConditionNFSClientInstalled, explain.Info, "NFSv4", "modprobe nfsv4"},
		{"no NBD client → for information", func(f *NodeFacts) { f.DataPlane.DeviceKind, f.DataPlane.WhyNoNBD = "fuse", "no module" }, types.ConditionKernelNBDClient, explain.Info, "no module", "modprobe nbd"},
		{"devices are not kept → for information", func(f *NodeFacts) { f.DataPlane.DevicesKept = false }, types.ConditionDeviceSuccession, explain.Info, "Linux 6.9", "uname -r"},
		{"commands are missing → which", func(f *NodeFacts) { f.MissingCommands = []string{"mkfs.xfs"} }, "MountTools", explain.Warning, "mkfs.xfs", "xfsprogs"},
		{"no modprobe → so", func(f *NodeFacts) { f.Modprobe = errors.New("no such file") }, "Modprobe", explain.Info, "no such file", "install kmod"},
		{"the disk is nearly full → the rule", func(f *NodeFacts) { f.Disk.StorageAvailable = build.GiB }, "DefaultDisk", explain.Warning, "must be more than", "df -h /var/lib/longhorn"},
		{"the disk is read-only → so", func(f *NodeFacts) { f.Disk.ReadOnly = true }, "DefaultDisk", explain.Broken, "read-only", "remount,rw"},
		{"the directory cannot be read → why", func(f *NodeFacts) { f.Disk.Err = errors.New("input/output error") }, "DefaultDisk", explain.Broken, "input/output error", "df -h"},
		{"not root → so", func(f *NodeFacts) { f.RootUser = false }, "User", explain.Warning, "not root", "sudo"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := whole()
			tc.change(&f)
			checks := Examine(f)
			for _, c := range checks {
				if c.Name != tc.check {
					if c.Severity != "" {
						t.Errorf("%s is %s besides: %s", c.Name, c.Severity, c.Message)
					}
					continue
				}
				if c.Severity != tc.severity || !strings.Contains(c.Message, tc.message) || len(c.Next) == 0 || !strings.Contains(commandsOf(c), tc.command) {
					t.Errorf("it says %+v", c)
				}
			}
			if IsBroken(checks) != (tc.severity == explain.Broken) {
				t.Errorf("broken is %v", IsBroken(checks))
			}
			var out strings.Builder
			Printer{&out, 1000}.Checks(checks)
			if !strings.Contains(out.String(), tc.check+": ") || !strings.Contains(out.String(), tc.message) {
				t.Errorf("printed as\n%s", out.String())
			}
		})
	}
	for _, c := range Examine(whole()) {
		if c.Severity != "" || c.Message == "" {
			t.Errorf("of a node that has all it is said: %+v", c)
		}
	}
}

func commandsOf(c Check) string {
	var commands []string
	for _, step := range c.Next {
		commands = append(commands, step.Command)
	}
	return strings.Join(commands, "\n")
}

func TestThisMachineIsLookedAt(t *testing.T) {
	dir := t.TempDir()
	f := LookAtNode(t.Context(), "n", types.Namespace, "/", dir+"/not/there/yet")
	if f.Kernel == "" || f.Disk.Path != dir || !f.Disk.Exists || f.Disk.StorageMaximum == 0 {
		t.Errorf("it is seen as %+v", f)
	}
}

func TestNamesAreOffered(t *testing.T) {
	c, _, kube := cluster()
	for _, name := range []string{"b", "a"} {
		claim := &corev1.PersistentVolumeClaim{}
		claim.Namespace, claim.Name = "shop", name
		if err := kube.Tracker().Add(claim); err != nil {
			t.Fatal(err)
		}
	}
	s, err := c.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for want, got := range map[string][]string{"v": VolumeNames(s), "n1": NodeNames(s), "disk-1": DiskNames(s), "shop/a shop/b": ClaimNames(s)} {
		if strings.Join(got, " ") != want {
			t.Errorf("offered are %q, want %q", got, want)
		}
	}
}

func TestANodeWithoutAnOpenDiskIsNotSchedulable(t *testing.T) {
	n := build.ReadyNode("n1", "uuid-n1")
	assert.True(t, nodeStatus(n).Schedulable)
	d := n.Spec.Disks["disk-1"]
	d.AllowScheduling = false
	n.Spec.Disks["disk-1"] = d
	assert.False(t, nodeStatus(n).Schedulable)
}

func TestTheIDOfATicketIsNotPrinted(t *testing.T) {
	f := explain.Finding{
		Object:   explain.Object{Kind: explain.KindTicket, Name: "csi-0123456789abcdef", Node: "n1"},
		Severity: explain.Warning, Reason: types.ReasonWaitingForShare, What: "node n1 waits until volume v is shared",
	}
	assert.Equal(t, f.What, sentence(f))
	var out strings.Builder
	Printer{&out, DefaultWidth}.Findings(&explain.Snapshot{}, "volume v", []explain.Finding{f})
	assert.Equal(t, "warning  node n1 waits until volume v is shared.\n", out.String())
}
