package explain

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/disk"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// fault is a cluster with one problem, and the expected finding about it.
type fault struct {
	name   string
	change func(w *world)
	ask    string
	// object, severity, reason and what belong to the expected finding; why and command are in one of its lines or
	// commands.
	object   string
	severity Severity
	reason   string
	what     string
	why      string
	command  string
}

func runFaults(t *testing.T, faults []fault) {
	t.Helper()
	for _, tc := range faults {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld()
			tc.change(w)
			found := w.ask(t, tc.ask)
			i := slices.IndexFunc(found, func(f Finding) bool { return f.Object.String() == tc.object && f.Reason == tc.reason })
			if i < 0 {
				t.Fatalf("%s %s is not among %+v", tc.object, tc.reason, found)
			}
			f := found[i]
			if f.Severity != tc.severity || !strings.Contains(f.What, tc.what) {
				t.Errorf("it says %s: %q, want %s: %q", f.Severity, f.What, tc.severity, tc.what)
			}
			if !strings.Contains(strings.Join(f.Why, "\n"), tc.why) {
				t.Errorf("it gives as why %q, want %q", f.Why, tc.why)
			}
			var commands []string
			for _, step := range f.Next {
				commands = append(commands, step.Command)
			}
			if !strings.Contains(strings.Join(commands, "\n"), tc.command) {
				t.Errorf("its commands are %q, want %q", commands, tc.command)
			}
			for _, f := range found {
				checkText(t, f)
			}
			if !slices.ContainsFunc(All(&w.Snapshot), func(other Finding) bool { return other.Object == f.Object && other.Reason == f.Reason }) {
				t.Errorf("%v %s is missing in what is said of the whole cluster", f.Object, f.Reason)
			}
		})
	}
}

func TestWhereAllIsWellNothingIsSaid(t *testing.T) {
	for _, words := range []string{"all", "volume v", "node n1", "disk n1 disk-1"} {
		if found := newWorld().ask(t, words); len(found) != 0 {
			t.Errorf("of %s it is said: %+v", words, found)
		}
	}
}

func TestTheSameSnapshotGivesTheSameAndStaysAsItIs(t *testing.T) {
	faulty := func() *world {
		w := newWorld()
		w.lose(3, types.ReasonDiskUnmounted, "m")
		w.nodeSays(2, types.ConditionReady, longhorn.ConditionFalse, types.ReasonKubernetesNodeNotReady, "m")
		w.diskSays(1, types.ConditionSchedulable, longhorn.ConditionFalse, types.ReasonDiskPressure, "m")
		return w
	}
	w := faulty()
	first, second := All(&w.Snapshot), All(&w.Snapshot)
	if !reflect.DeepEqual(first, second) || len(first) < 3 {
		t.Errorf("first %+v, then %+v", first, second)
	}
	if !reflect.DeepEqual(w.Snapshot, faulty().Snapshot) {
		t.Error("the snapshot was changed")
	}
	if !slices.IsSortedFunc(first, func(a, b Finding) int { return a.Severity.rank() - b.Severity.rank() }) {
		t.Errorf("the worst is not first: %+v", first)
	}
}

func TestWhatDoesNotExistIsAnErrorThatNamesWhatDoes(t *testing.T) {
	w := newWorld()
	for words, ask := range map[string]func() ([]Finding, error){
		`volume "x" does not exist; there are v`:                             func() ([]Finding, error) { return Volume(&w.Snapshot, "x") },
		`node "x" does not exist; there are n1, n2, n3`:                      func() ([]Finding, error) { return Node(&w.Snapshot, "x") },
		`disk "x" does not exist; there are n1/disk-1, n2/disk-1, n3/disk-1`: func() ([]Finding, error) { return Disk(&w.Snapshot, "", "x") },
		`disk "disk-2" does not exist; there are n1/disk-1`:                  func() ([]Finding, error) { return Disk(&w.Snapshot, "n1", "disk-2") },
		`claim "a/x" does not exist`:                                         func() ([]Finding, error) { return Claim(&w.Snapshot, "a", "x") },
	} {
		if _, err := ask(); err == nil || err.Error() != words {
			t.Errorf("got %v, want %q", err, words)
		}
	}
	w.Unseen = []string{ResourceNodes}
	if _, err := Node(&w.Snapshot, "x"); err == nil || !strings.Contains(err.Error(), "may not read nodes.longhorn.io") {
		t.Errorf("without the right to read nodes: %v", err)
	}
}

func TestTheTaintOfANodeThatIsOffIsNotReported(t *testing.T) {
	w := newWorld()
	w.KubeNodes[0].Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService}}
	w.nodeSays(1, types.ConditionReady, longhorn.ConditionFalse, types.ReasonKubernetesNodeNotReady, "m")
	if found := w.ask(t, "all"); slices.ContainsFunc(found, func(f Finding) bool { return f.Reason == "OutOfServiceTaint" }) {
		t.Errorf("got %+v", found)
	}
}

func TestNodesAreExplained(t *testing.T) {
	runFaults(t, []fault{
		{
			name: "the kubelet does not answer → the node, with what Kubernetes says", ask: "node n1",
			change: func(w *world) {
				w.nodeSays(1, types.ConditionReady, longhorn.ConditionFalse, types.ReasonKubernetesNodeNotReady, "Kubernetes node n1 is not ready: kubelet stopped posting node status")
			},
			object: "node n1", severity: Broken, reason: types.ReasonKubernetesNodeNotReady,
			what: "node n1 is not ready", why: "kubelet stopped posting", command: "kubectl describe node n1",
		},
		{
			name: "it is back, and still has the taint of a node that is off → the command that removes the taint", ask: "volume v",
			change: func(w *world) {
				w.KubeNodes[0].Spec.Taints = []corev1.Taint{{Key: "node.kubernetes.io/out-of-service", Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute}}
			},
			object: "node n1", severity: Warning, reason: "OutOfServiceTaint", what: "node n1 is ready, but still has the taint node.kubernetes.io/out-of-service",
			why: "no pod can start on the node", command: "kubectl taint node n1 node.kubernetes.io/out-of-service-",
		},
		{
			name: "the node served shares and is silent → who found it", ask: "node n1",
			change: func(w *world) {
				w.nodeSays(1, types.ConditionReady, longhorn.ConditionFalse, types.ReasonNodeNotAnswering, "node n1 answers neither the leader nor node n2")
			},
			object: "node n1", severity: Broken, reason: types.ReasonNodeNotAnswering, what: "node n1 is silent", why: "neither the leader nor node n2", command: "get lhn n1 -o jsonpath={.status.silence}",
		},
		{
			name: "no daemon is there → volumes are served all the same", ask: "node n1",
			change: func(w *world) {
				w.nodeSays(1, types.ConditionReady, longhorn.ConditionFalse, types.ReasonManagerPodMissing, "no pod of longhorn-manager is on node n1")
			},
			object: "node n1", severity: Warning, reason: types.ReasonManagerPodMissing, what: "volumes are served", command: "describe daemonset longhorn-manager",
		},
		{
			name: "the annotation is refused → the key and the position", ask: "node n1",
			change: func(w *world) {
				w.nodeSays(1, types.ConditionDefaultDisksConfig, longhorn.ConditionFalse, types.ReasonDefaultDisksConfigInvalid,
					`default-disks-config: disk 2, key "storageReserved", line 1 column 57: must be a whole number of bytes, got "1Gi"`)
			},
			object: "node n1", severity: Warning, reason: types.ReasonDefaultDisksConfigInvalid, what: "refused as a whole",
			why: `key "storageReserved", line 1 column 57`, command: "kubectl edit node n1",
		},
		{
			name: "the kernel has no NBD client → a module to load", ask: "node n1",
			change: func(w *world) {
				w.nodeSays(1, types.ConditionKernelNBDClient, longhorn.ConditionFalse, types.ReasonKernelNBDClientNotUsed, "the kernel has no NBD client (module nbd)")
			},
			object: "node n1", severity: Info, reason: types.ReasonKernelNBDClientNotUsed, what: "FUSE", why: "module nbd", command: "modprobe nbd",
		},
		{
			name: "the kernel has no NFS client, and a volume is shared → a warning", ask: "node n2",
			change: func(w *world) {
				w.v.Spec.AccessMode = longhorn.AccessModeReadWriteMany
				w.nodeSays(2, types.ConditionNFSClientInstalled, longhorn.ConditionFalse, types.ReasonNFSClientNotFound, "no NFSv4 client loaded")
			},
			object: "node n2", severity: Warning, reason: types.ReasonNFSClientNotFound, what: "no NFS client", why: "ReadWriteMany", command: "modprobe nfsv4",
		},
		{
			name: "the kernel has neither fuse nor loop → nothing can be attached", ask: "node n1",
			change: func(w *world) {
				w.nodeSays(1, types.ConditionKernelModulesLoaded, longhorn.ConditionFalse, types.ReasonKernelModulesNotLoaded, "lacks /dev/fuse")
			},
			object: "node n1", severity: Broken, reason: types.ReasonKernelModulesNotLoaded, what: "no volume can be attached", command: "exec longhorn-manager-n1 -- longhorn-manager doctor",
		},
		{
			name: "the pod of the instance manager is not placed → what the scheduler of pods says", ask: "node n1",
			change: func(w *world) {
				im := w.InstanceManagers[0]
				im.Status.CurrentState = longhorn.InstanceManagerStateStarting
				condition(&im.Status.Conditions, types.ConditionPodReady, longhorn.ConditionFalse, types.ReasonPodStarting, "its pod is starting")
				w.Pods = append(w.Pods, build.Pod(im.Name, "n1", func(p *corev1.Pod) {
					p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "Insufficient cpu"}}
				}))
			},
			object: "instance manager " + types.InstanceManagerName("n1"), severity: Warning, reason: types.ReasonPodStarting,
			what: "data plane of node n1 is starting", why: "Insufficient cpu", command: "describe pod " + types.InstanceManagerName("n1"),
		},
		{
			name: "there is no instance manager at all → the daemon", ask: "node n1",
			change: func(w *world) { w.InstanceManagers = w.InstanceManagers[1:] },
			object: "instance manager " + types.InstanceManagerName("n1"), severity: Broken, reason: "InstanceManagerMissing", what: "node n1 has no instance manager",
			command: "spec.nodeName=n1",
		},
		{
			name: "the node has no disk and no label → the label", ask: "node n1",
			change: func(w *world) {
				w.Nodes[0].Spec.Disks, w.Nodes[0].Status.DiskStatus = nil, nil
				w.Settings = append(w.Settings, build.Setting(settings.CreateDefaultDiskLabeled, "true"))
			},
			object: "node n1", severity: Warning, reason: "NoDisks", what: "no disk", why: types.LabelCreateDefaultDisk, command: "create-default-disk=true",
		},
		{
			name: "scheduling is not allowed → how to allow it", ask: "node n1",
			change: func(w *world) { w.Nodes[0].Spec.AllowScheduling = false },
			object: "node n1", severity: Info, reason: "SchedulingDisabled", what: "gets no new replicas", command: `"allowScheduling":true`,
		},
		{
			name: "a node is to be emptied, and another place is missing → the replica and why it stays", ask: "node n3",
			change: func(w *world) {
				w.Nodes[2].Spec.EvictionRequested, w.Nodes[2].Spec.AllowScheduling = true, false
				w.volumeSays(types.ConditionScheduled, longhorn.ConditionFalse, types.ReasonEvictionFailed, "there is no place for another one")
			},
			object: "node n3", severity: Info, reason: "EvictionRequested", what: "evicted from node n3", why: "replica v-r-3 of volume v: there is no place", command: `"evictionRequested":false`,
		},
		{
			name: "a drain waits for the last copy → which", ask: "node n1",
			change: func(w *world) {
				condition(&w.InstanceManagers[0].Status.Conditions, types.ConditionDrainable, longhorn.ConditionFalse, types.ReasonLastReplica, "last healthy replicas of volumes v")
			},
			object: "instance manager " + types.InstanceManagerName("n1"), severity: Warning, reason: types.ReasonLastReplica, what: "drain of node n1 waits", why: "volumes v", command: "node-drain-policy",
		},
		{
			name: "a setting is invalid → the rule, and the value in force", ask: "all",
			change: func(w *world) {
				w.Settings = append(w.Settings, build.Setting(settings.DefaultReplicaCount, "many", func(s *longhorn.Setting) {
					condition(&s.Status.Conditions, types.ConditionValid, longhorn.ConditionFalse, types.ReasonInvalidValue, `value "many" is not a whole number; the value 3 stays in force`)
				}))
			},
			object: "setting default-replica-count", severity: Warning, reason: types.ReasonInvalidValue, what: "is invalid", why: "stays in force", command: "patch lhs default-replica-count",
		},
		{
			name: "a setting is invalid, and no daemon has said so yet → the rule", ask: "all",
			change: func(w *world) {
				w.Settings = append(w.Settings, build.Setting(settings.DefaultReplicaCount, "many"))
			},
			object: "setting default-replica-count", severity: Warning, reason: types.ReasonInvalidValue, what: "is invalid", why: "is not a whole number", command: "patch lhs default-replica-count",
		},
	})
}

func TestDisksAreExplained(t *testing.T) {
	notReady := func(reason, message string) func(*world) {
		return func(w *world) {
			w.diskSays(1, types.ConditionReady, longhorn.ConditionFalse, reason, message)
			w.diskSays(1, types.ConditionSchedulable, longhorn.ConditionFalse, types.ReasonDiskNotReady, "not ready")
		}
	}
	const disk1 = "disk disk-1 on node n1"
	runFaults(t, []fault{
		{
			name: "the directory is missing → where to look", ask: "disk n1 disk-1", change: notReady(disk.ReasonNoDiskInfo, "no such file or directory"),
			object: disk1, severity: Broken, reason: disk.ReasonNoDiskInfo, what: "cannot be read", why: "no such file", command: "ls -l /var/lib/longhorn /var/lib/longhorn/longhorn-disk.cfg",
		},
		{
			name: "it is not mounted → mount it", ask: "disk n1 disk-1", change: notReady(disk.ReasonDiskFilesystemChanged, "its file system is probably not mounted. Mount it"),
			object: disk1, severity: Broken, reason: disk.ReasonDiskFilesystemChanged, what: "not at its path", why: "Mount it", command: "mount /var/lib/longhorn",
		},
		{
			name: "it is read-only → the kernel's log", ask: "disk n1 disk-1", change: notReady(disk.ReasonDiskReadOnly, "its file system is read-only"),
			object: disk1, severity: Broken, reason: disk.ReasonDiskReadOnly, what: "read-only", why: "read-only", command: "dmesg",
		},
		{
			name: "its UUID is another disk's → which is the original", ask: "disk n1 disk-1", change: notReady(disk.ReasonDuplicateUUID, "disk UUID u also belongs to disks [disk-2]"),
			object: disk1, severity: Broken, reason: disk.ReasonDuplicateUUID, what: "UUID of another disk", why: "disk-2", command: "edit lhn n1",
		},
		{
			name: "it hangs → the kernel's log", ask: "disk n1 disk-1", change: notReady(types.ReasonDiskNotResponding, "no answer for 30s"),
			object: disk1, severity: Broken, reason: types.ReasonDiskNotResponding, what: "hangs", why: "30s", command: "dmesg",
		},
		{
			name: "it is full → writes wait or fail", ask: "disk n1 disk-1",
			change: func(w *world) {
				w.disk(1, func(_ *longhorn.DiskSpec, s *longhorn.DiskStatus) { s.StorageAvailable = 0 })
				w.diskSays(1, types.ConditionSchedulable, longhorn.ConditionFalse, types.ReasonDiskPressure, "it is full: storageAvailable is 0")
			},
			object: disk1, severity: Broken, reason: types.ReasonDiskPressure, what: "is full", why: "storageAvailable is 0", command: "df -h /var/lib/longhorn",
		},
		{
			name: "it has room, but less than must stay free → pressure alone", ask: "disk n1 disk-1",
			change: func(w *world) {
				w.diskSays(1, types.ConditionSchedulable, longhorn.ConditionFalse, types.ReasonDiskPressure, "storageAvailable 1 must be more than 2")
			},
			object: disk1, severity: Warning, reason: types.ReasonDiskPressure, what: "no space for another replica", why: "must be more than 2", command: "longhorndiskuuid=uuid-n1",
		},
		{
			name: "it is disabled → how to allow it", ask: "disk n1 disk-1",
			change: func(w *world) {
				w.disk(1, func(s *longhorn.DiskSpec, _ *longhorn.DiskStatus) { s.AllowScheduling = false })
			},
			object: disk1, severity: Info, reason: "SchedulingDisabled", what: "allowScheduling is false", command: `{"disk-1":{"allowScheduling":true}}`,
		},
		{
			name: "it is to be emptied, and the volume is detached → the replica waits for that", ask: "disk n1 disk-1",
			change: func(w *world) {
				w.disk(1, func(s *longhorn.DiskSpec, _ *longhorn.DiskStatus) {
					s.EvictionRequested, s.AllowScheduling = true, false
				})
				w.diskSays(1, types.ConditionEmptied, longhorn.ConditionFalse, types.ReasonReplicasLeft, "replicas still to leave: 1")
				w.detach()
				w.volumeSays(types.ConditionEvictionWaits, longhorn.ConditionTrue, types.ReasonVolumeDetached, "replica v-r-1")
			},
			object: disk1, severity: Info, reason: types.ReasonReplicasLeft, what: "being evicted", why: "replica v-r-1 of volume v: the volume is detached", command: "longhorndiskuuid=uuid-n1",
		},
		{
			name: "it is to be emptied, and a volume cannot be detached → its device is in use", ask: "disk n1 disk-1",
			change: func(w *world) {
				w.disk(1, func(s *longhorn.DiskSpec, _ *longhorn.DiskStatus) {
					s.EvictionRequested, s.AllowScheduling = true, false
				})
				w.diskSays(1, types.ConditionEmptied, longhorn.ConditionFalse, types.ReasonReplicasLeft, "replicas still to leave: 1")
				w.volumeSays(types.ConditionDeviceInUse, longhorn.ConditionTrue, types.ConditionDeviceInUse, "pid 17 (dd)")
			},
			object: disk1, severity: Info, reason: types.ReasonReplicasLeft, what: "being evicted", why: "replica v-r-1 of volume v: the volume is to be detached, but its device is in use", command: "longhorndiskuuid=uuid-n1",
		},
		{
			name: "it is to be emptied, and another copy is rebuilt → how far that is", ask: "disk n1 disk-1",
			change: func(w *world) {
				w.diskSays(1, types.ConditionEmptied, longhorn.ConditionFalse, types.ReasonReplicasLeft, "replicas still to leave: 1")
				w.e.Status.RebuildStatus = map[string]longhorn.RebuildStatus{"v-r-2": {IsRebuilding: true, Progress: 42}}
			},
			object: disk1, severity: Info, reason: types.ReasonReplicasLeft, what: "being evicted", why: "replica v-r-2 replaces it; its rebuild is at 42 %", command: "get lhr",
		},
		{
			name: "its node is not ready → the node is told with the disk", ask: "disk n1 disk-1",
			change: func(w *world) {
				w.nodeSays(1, types.ConditionReady, longhorn.ConditionFalse, types.ReasonKubernetesNodeNotReady, "no answer")
				w.diskSays(1, types.ConditionReady, longhorn.ConditionFalse, types.ReasonNodeNotReady, "no answer")
			},
			object: "node n1", severity: Broken, reason: types.ReasonKubernetesNodeNotReady, what: "node n1 is not ready", command: "describe node n1",
		},
	})
}

func TestClaimsAreExplained(t *testing.T) {
	pending := func(change func(w *world, c *corev1.PersistentVolumeClaim)) func(w *world) {
		return func(w *world) {
			class := "longhorn"
			c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data"}}
			c.Spec.StorageClassName, c.Status.Phase = &class, corev1.ClaimPending
			w.Claims = append(w.Claims, c)
			change(w, c)
		}
	}
	const claim = "claim shop/data"
	runFaults(t, []fault{
		{
			name: "making the volume failed → what the Event says", ask: "claim shop data",
			change: pending(func(w *world, c *corev1.PersistentVolumeClaim) {
				for i, text := range []string{"an older one", "size must be greater than zero"} {
					e := &corev1.Event{Type: corev1.EventTypeWarning, Reason: "ProvisioningFailed", Message: text, LastTimestamp: metav1.Time{Time: now.Add(time.Duration(i) * time.Second)}}
					e.InvolvedObject = corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: "shop", Name: "data"}
					w.Events = append(w.Events, e)
				}
			}),
			object: claim, severity: Warning, reason: "ClaimPending", what: "waits for its volume", why: "size must be greater", command: "kubectl -n shop describe pvc data",
		},
		{
			name: "its volume is there and lacks something → what the volume lacks", ask: "claim shop data",
			change: pending(func(w *world, c *corev1.PersistentVolumeClaim) {
				c.UID, w.v.Name = "u1", "pvc-u1"
				w.volumeSays(types.ConditionChildRefused, longhorn.ConditionTrue, "Forbidden", "exceeded quota: no-more")
			}),
			object: "volume pvc-u1", severity: Broken, reason: "Forbidden", what: "API server refuses", why: "exceeded quota", command: "get resourcequota",
		},
		{
			name: "the class waits for a pod → use it in one", ask: "claim shop data",
			change: pending(func(w *world, _ *corev1.PersistentVolumeClaim) {
				mode := storagev1.VolumeBindingWaitForFirstConsumer
				w.Classes[0].VolumeBindingMode = &mode
			}),
			object: claim, severity: Info, reason: "ClaimPending", what: "waits", why: "WaitForFirstConsumer", command: "describe pvc data",
		},
		{
			name: "the class does not exist → the classes", ask: "claim shop data",
			change: pending(func(w *world, _ *corev1.PersistentVolumeClaim) { w.Classes = nil }),
			object: claim, severity: Broken, reason: "ClaimPending", what: "does not exist", command: "kubectl get storageclass",
		},
		{
			name: "nothing is said of it → the pods that make volumes", ask: "claim shop data",
			change: pending(func(*world, *corev1.PersistentVolumeClaim) {}),
			object: claim, severity: Warning, reason: "ClaimPending", what: "waits", command: "app=longhorn-csi-controller",
		},
	})
	w := newWorld()
	pending(func(w *world, _ *corev1.PersistentVolumeClaim) { w.Classes[0].Provisioner = "other.example" })(w)
	if found := All(&w.Snapshot); len(found) != 0 {
		t.Errorf("a claim of another driver's class is explained: %+v", found)
	}
}
