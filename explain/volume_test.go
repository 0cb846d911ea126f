package explain

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/scheduler"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// unplaced makes the volume request one copy more than exist. A change of the cluster leaves that copy without a
// place.
func unplaced(change func(w *world)) func(w *world) {
	return func(w *world) {
		for i := range 3 {
			w.Nodes[i].Spec.AllowScheduling = i == 2 // only n3 could have a place
		}
		w.Replicas = w.Replicas[:2]
		w.volumeSays(types.ConditionScheduled, longhorn.ConditionFalse, types.ReasonReplicaSchedulingFailure, "replica scheduling failed")
		change(w)
	}
}

func TestVolumesWithoutAPlaceAreExplained(t *testing.T) {
	lacks := func(name, why, command string, change func(w *world)) fault {
		return fault{
			name: name, ask: "volume v", change: unplaced(change), object: "volume v", severity: Warning,
			reason: types.ReasonReplicaSchedulingFailure, what: "no disk fits", why: why, command: command,
		}
	}
	const n3 = "node n3 disk disk-1: "
	runFaults(t, []fault{
		lacks("the node is not ready → so", n3+scheduler.ReasonNodesUnavailable+": the node is not ready", "explain node n3", func(w *world) {
			w.nodeSays(3, types.ConditionReady, longhorn.ConditionFalse, types.ReasonManagerPodDown, "m")
		}),
		lacks("the node is not allowed → so", n3+scheduler.ReasonNodesUnavailable+": allowScheduling of the node is false", "patch lhn n1", func(w *world) {
			w.Nodes[2].Spec.AllowScheduling = false
		}),
		lacks("the instance manager does not run → so", n3+scheduler.ReasonNodesUnavailable+": the node's instance manager", "explain node n3", func(w *world) {
			w.InstanceManagers[2].Status.CurrentState = longhorn.InstanceManagerStateError
		}),
		lacks("the disk is not ready → so", n3+scheduler.ReasonDisksUnavailable+": the disk is not ready", "explain node n3", func(w *world) {
			w.diskSays(3, types.ConditionReady, longhorn.ConditionFalse, "DiskReadOnly", "m")
		}),
		lacks("the disk is being evicted → so", n3+scheduler.ReasonDisksUnavailable+": the disk is being evicted", "patch lhn n1", func(w *world) {
			w.Nodes[2].Spec.EvictionRequested = true
		}),
		lacks("the disk has no room → room there", n3+scheduler.ReasonInsufficientStorage+": storageScheduled", "explain node n3", func(w *world) {
			w.v.Spec.Size = 300 * build.GiB
		}),
		lacks("selectors without match → the tags", n3+scheduler.ReasonTagsNotFulfilled+": the disk lacks tags [ssd]", `patch lhn n3 --type merge -p '{"spec":{"disks":{"disk-1":{"tags":["ssd"]}}}}'`, func(w *world) {
			w.v.Spec.DiskSelector = []string{"ssd"}
		}),
		lacks("another copy is there already → anti-affinity", n3+scheduler.ReasonAntiAffinity, "patch lhn n1", func(w *world) {
			w.Replicas[1].Spec.NodeID, w.Replicas[1].Spec.DiskID = "n3", "uuid-n3"
		}),
		lacks("the disk lies on the volume itself → so", n3+scheduler.ReasonOnItself, "patch lhn n1", func(w *world) {
			w.disk(3, func(_ *longhorn.DiskSpec, s *longhorn.DiskStatus) { s.OnVolume = "v" })
		}),
		lacks("the node has no disk → so", "node n3: "+scheduler.ReasonDiskNotFound, "patch lhn n1", func(w *world) {
			w.Nodes[2].Spec.Disks = nil
		}),
		lacks("more copies than nodes → ask for fewer", n3, `"numberOfReplicas":3`, func(w *world) {
			w.v.Spec.NumberOfReplicas = 5
			w.Nodes[0].Spec.AllowScheduling, w.Nodes[1].Spec.AllowScheduling = true, true
			w.Replicas = append(w.Replicas, build.PlacedReplica("v-r-3", "v", "n3", "uuid-n3", func(r *longhorn.Replica) {
				r.Spec.DesireState, r.Status.CurrentState = longhorn.DesireStateRunning, longhorn.InstanceStateRunning
			}))
		}),
		{
			name: "the volume may be used with fewer → which have no place", ask: "volume v",
			change: unplaced(func(w *world) {
				w.Nodes[2].Spec.AllowScheduling = false
				w.volumeSays(types.ConditionScheduled, longhorn.ConditionTrue, types.ReasonDegradedAvailability, "2 of 3 replicas are scheduled")
			}),
			object: "volume v", severity: Warning, reason: types.ReasonDegradedAvailability, what: "fewer replicas than requested", why: n3, command: "patch lhn n1",
		},
	})
}

func TestVolumesWhoseDataIsInDangerAreExplained(t *testing.T) {
	faulted := func(w *world) {
		w.detach()
		w.v.Spec.NodeID, w.v.Status.Robustness = "n1", longhorn.VolumeRobustnessFaulted
		w.volumeSays(types.ConditionFaulted, longhorn.ConditionTrue, types.ReasonReplicaMissing, "no replica with all data is running")
	}
	runFaults(t, []fault{
		{
			name: "faulted, a copy is on a node that is down → the node, and salvage", ask: "volume v",
			change: func(w *world) {
				faulted(w)
				w.e.Status.Epoch.Members = []string{"v-r-2"}
				w.nodeSays(2, types.ConditionReady, longhorn.ConditionFalse, types.ReasonKubernetesNodeNotReady, "no answer")
			},
			object: "volume v", severity: Broken, reason: types.ReasonReplicaMissing, what: "faulted", why: "replica v-r-2 holds all data: its node n2 is down", command: "explain node n2",
		},
		{
			name: "faulted, a copy is there → salvage with its name", ask: "volume v",
			change: func(w *world) { faulted(w); w.e.Status.Epoch.Members = []string{"v-r-2"} },
			object: "volume v", severity: Broken, reason: types.ReasonReplicaMissing, what: "faulted", why: "replica v-r-2 holds all data: on node n2", command: `kubectl longhorn ui
rest -X POST "$API/v1/volumes/v?action=salvage" -d '{"names":["v-r-2"]}'`,
		},
		{
			name: "faulted, and no copy is proven to be good → a backup, or reading by hand", ask: "volume v",
			change: func(w *world) { faulted(w); w.e.Status.Epoch.Members = []string{"v-r-gone"} },
			object: "volume v", severity: Broken, reason: types.ReasonReplicaMissing, what: "faulted", why: "no replica is proven to hold all data: the replicas that did (v-r-gone)",
			command: "replica serve --directory /var/lib/longhorn/replicas/v-v-r-1",
		},
		{
			name: "degraded, a rebuild runs → how far it is", ask: "volume v",
			change: func(w *world) {
				w.lose(3, "", "")
				w.e.Status.ReplicaModeMap["v-r-3"] = longhorn.ReplicaModeWO
				w.e.Status.RebuildStatus = map[string]longhorn.RebuildStatus{"v-r-3": {IsRebuilding: true, Progress: 37, CopyBytes: 256 << 20, Partial: true}}
			},
			object: "volume v", severity: Warning, reason: "Degraded", what: "2 of 3 healthy replicas", why: "replica v-r-3: its rebuild is running: 37 % of 256 MiB, only the missing data", command: "rebuildStatus",
		},
		{
			name: "degraded, the rebuild failed and waits → the error and when the next one is", ask: "volume v",
			change: func(w *world) {
				r := w.lose(3, "", "")
				r.Spec.RebuildRetryCount, r.Spec.ServedUUID = 4, r.Status.UUID
				w.e.Status.RebuildStatus = map[string]longhorn.RebuildStatus{"v-r-3": {Error: "connection reset"}}
			},
			object: "volume v", severity: Warning, reason: "Degraded", what: "2 of 3",
			why: "its rebuild failed: connection reset; failed rebuilds in a row: 4; the next rebuild is due in 1m40s", command: "rebuildStatus",
		},
		{
			name: "degraded, the node has a rebuild of another volume → its turn comes", ask: "volume v",
			change: func(w *world) {
				w.lose(3, "", "")
				w.Settings = append(w.Settings, build.Setting(settings.ConcurrentReplicaRebuildPerNodeLimit, "1"))
				w.Engines = append(w.Engines, build.Engine("other", func(e *longhorn.Engine) {
					e.Status.RebuildStatus = map[string]longhorn.RebuildStatus{"other-r-1": {IsRebuilding: true}}
				}))
				w.Volumes = append(w.Volumes, build.Volume("other"))
				w.Replicas = append(w.Replicas, build.PlacedReplica("other-r-1", "other", "n3", "uuid-n3"))
			},
			object: "volume v", severity: Warning, reason: "Degraded", what: "2 of 3", why: "as many rebuilds as allowed, one of them for volume other", command: "rebuildStatus",
		},
		{
			name: "degraded, and rebuilds are turned off → the setting", ask: "volume v",
			change: func(w *world) {
				w.lose(3, "", "")
				w.Settings = append(w.Settings, build.Setting(settings.ConcurrentReplicaRebuildPerNodeLimit, "0"))
			},
			object: "volume v", severity: Warning, reason: "Degraded", what: "2 of 3", why: "is 0, so no replica is rebuilt", command: "patch lhs concurrent-replica-rebuild-per-node-limit",
		},
		{
			name: "degraded, the copy's node is down → when another one is made", ask: "volume v",
			change: func(w *world) {
				w.lose(3, "", "").Status.CurrentState = longhorn.InstanceStateUnknown
				w.nodeSays(3, types.ConditionReady, longhorn.ConditionFalse, types.ReasonKubernetesNodeNotReady, "no answer")
			},
			object: "volume v", severity: Warning, reason: "Degraded", what: "2 of 3", why: "its node n3 is down; if it does not come back, another replica is created in 9m0s", command: "explain node n3",
		},
		{
			name: "a copy's disk was unmounted → mount it", ask: "volume v",
			change: func(w *world) { w.lose(3, types.ReasonDiskUnmounted, "the disk is not mounted any more") },
			object: "replica v-r-3", severity: Warning, reason: types.ReasonDiskUnmounted, what: "no longer mounted", why: "not mounted any more", command: "findmnt -T /var/lib/longhorn",
		},
		{
			name: "a copy's data was deleted → it is made anew", ask: "volume v",
			change: func(w *world) { w.lose(3, types.ReasonDataDeleted, "its data file is gone") },
			object: "replica v-r-3", severity: Warning, reason: types.ReasonDataDeleted, what: "was deleted", why: "data file is gone", command: "explain volume v",
		},
		{
			name: "detached with too few copies → attach it", ask: "volume v",
			change: func(w *world) {
				w.detach()
				w.volumeSays(types.ConditionCopiesMissing, longhorn.ConditionTrue, types.ReasonVolumeDetached, "healthy replicas: 1 of the 3 requested")
			},
			object: "volume v", severity: Warning, reason: types.ReasonVolumeDetached, what: "fewer healthy replicas", why: "1 of the 3", command: "longhornvolume=v",
		},
		{
			name: "its only copy is on a node that is down → bring that back", ask: "volume v",
			change: func(w *world) {
				w.volumeSays(types.ConditionCopiesUnreachable, longhorn.ConditionTrue, types.ReasonNodeDown, "node n1, which has the volume's only healthy replica, does not answer")
			},
			object: "volume v", severity: Broken, reason: types.ReasonNodeDown, what: "on nodes that are down", why: "node n1, which has the volume's only", command: "explain node n1",
		},
		{
			name: "its volume is gone → an orphan", ask: "all",
			change: func(w *world) {
				w.Replicas = append(w.Replicas, build.PlacedReplica("old-r-1", "old", "n9", "uuid-n9"))
			},
			object: "replica old-r-1", severity: Warning, reason: "Orphan", what: "volume old, which no longer exists", why: "its node n9 no longer exists", command: "delete lhr old-r-1",
		},
	})
}

func TestStepsNameWhatMustComeBack(t *testing.T) {
	faulted := func(w *world) {
		w.detach()
		w.v.Spec.NodeID, w.v.Status.Robustness = "n1", longhorn.VolumeRobustnessFaulted
		w.volumeSays(types.ConditionFaulted, longhorn.ConditionTrue, types.ReasonReplicaMissing, "no replica with all data is running")
	}
	down := func(w *world, node int) {
		w.nodeSays(node, types.ConditionReady, longhorn.ConditionFalse, types.ReasonKubernetesNodeNotReady, "no answer")
	}
	for name, tc := range map[string]struct {
		change func(w *world)
		want   string
	}{
		"a node is down → its name": {func(w *world) { faulted(w); w.e.Status.Epoch.Members = []string{"v-r-2"}; down(w, 2) }, "Bring back node n2: the volume starts"},
		"a disk is away → its name": {func(w *world) {
			faulted(w)
			w.e.Status.Epoch.Members = []string{"v-r-2"}
			w.diskSays(2, types.ConditionReady, longhorn.ConditionFalse, "NoDiskInfo", "m")
		}, "Bring back disk disk-1 on node n2: the volume starts"},
		"two nodes are down → one of them is enough": {func(w *world) {
			faulted(w)
			w.e.Status.Epoch.Members = []string{"v-r-2", "v-r-3"}
			down(w, 2)
			down(w, 3)
		}, "Bring back node n2 or node n3: the volume starts"},
		"nothing is known to be away → see the lines above": {func(w *world) { faulted(w) }, "Bring back the node or the disk that the lines above name: the volume starts"},
		"it is attached, and its replicas are away → their node": {func(w *world) {
			w.e.Status.Epoch.Members = []string{"v-r-3"}
			down(w, 3)
			w.volumeSays(types.ConditionCopiesUnreachable, longhorn.ConditionTrue, types.ReasonNodeDown, "m")
		}, "Bring back node n3: the volume starts"},
	} {
		w := newWorld()
		tc.change(w)
		var texts []string
		for _, f := range w.ask(t, "volume v") {
			for _, step := range f.Next {
				texts = append(texts, step.Text)
			}
		}
		if text := strings.Join(texts, "\n"); !strings.Contains(text, tc.want) {
			t.Errorf("%s: got %q, want %q", name, text, tc.want)
		}
	}
}

func TestAFaultedVolumeIsOneError(t *testing.T) {
	w := newWorld()
	w.detach()
	w.v.Spec.NodeID, w.v.Status.Robustness = "n1", longhorn.VolumeRobustnessFaulted
	w.volumeSays(types.ConditionFaulted, longhorn.ConditionTrue, types.ReasonReplicaMissing, "no replica with all data is running")
	w.volumeSays(types.ConditionCopiesUnreachable, longhorn.ConditionTrue, types.ReasonNodeDown, "all healthy replicas are on nodes that are down")
	var reasons []string
	for _, f := range w.ask(t, "volume v") {
		if f.Object.Kind == KindVolume {
			reasons = append(reasons, f.Reason)
		}
	}
	if len(reasons) != 1 || reasons[0] != types.ReasonReplicaMissing {
		t.Errorf("got %v", reasons)
	}
}

// TestNoTextRefersToAMessage: users see lines, and the table of status has only the first sentence of a finding.
func TestNoTextRefersToAMessage(t *testing.T) {
	for _, table := range tables {
		for c, a := range table {
			texts := []string{a.what}
			for _, step := range a.next {
				texts = append(texts, step.Text)
			}
			for _, text := range texts {
				if strings.Contains(text, "the message") || text == a.what && strings.Contains(text, "above") {
					t.Errorf("%v: %q", c, text)
				}
			}
		}
	}
}

func TestVolumesThatCannotBeUsedAreExplained(t *testing.T) {
	runFaults(t, []fault{
		{
			name: "the engine's node is down → say so if it is off", ask: "volume v",
			change: func(w *world) {
				w.nodeSays(1, types.ConditionReady, longhorn.ConditionFalse, types.ReasonKubernetesNodeNotReady, "no answer")
			},
			object: "engine v-e-0", severity: Broken, reason: "EngineNodeDown", what: "used on node n1, which is down", why: "may still run", command: "taint node n1 node.kubernetes.io/out-of-service",
		},
		{
			name: "the device could not be made → the node's doctor", ask: "volume v",
			change: func(w *world) {
				w.e.Status.CurrentState = longhorn.InstanceStateError
				condition(&w.e.Status.Conditions, types.ConditionInstanceCreation, longhorn.ConditionFalse, engineFrontendFailed, "no such device")
			},
			object: "engine v-e-0", severity: Broken, reason: engineFrontendFailed, what: "block device", why: "no such device", command: "longhorn-manager doctor",
		},
		{
			name: "it is attached elsewhere → the ticket", ask: "volume v",
			change: func(w *world) { w.ticket("n2", types.ReasonAttachedElsewhere, "volume v is attached to node n1") },
			object: "ticket t", severity: Warning, reason: types.ReasonAttachedElsewhere, what: "cannot be attached to node n2", why: "node n1", command: "get volumeattachments.storage.k8s.io",
		},
		{
			name: "the ticket's reason is the volume's own → the volume", ask: "volume v",
			change: func(w *world) { w.ticket("n2", types.ReasonReplicaMissing, "volume v cannot be attached") },
			object: "ticket t", severity: Warning, reason: types.ReasonReplicaMissing, what: "cannot be attached to node n2", why: "cannot be attached", command: "explain volume v",
		},
		{
			name: "it is strict-local on another node → the node", ask: "volume v",
			change: func(w *world) {
				w.v.Spec.DataLocality = longhorn.DataLocalityStrictLocal
				w.ticket("n2", types.ReasonStrictLocal, "its data is on node n1")
			},
			object: "ticket t", severity: Broken, reason: types.ReasonStrictLocal, what: "strict-local", why: "node n1", command: `"dataLocality":"best-effort"`,
		},
		{
			name: "its expansion has no room → room, or take it back", ask: "volume v",
			change: func(w *world) {
				w.v.Spec.Size = 2 * build.GiB
				w.volumeSays(types.ConditionExpanded, longhorn.ConditionFalse, types.ReasonNoRoomToGrow, "disk disk-1 of node n1")
			},
			object: "volume v", severity: Warning, reason: types.ReasonNoRoomToGrow, what: "waits to grow", why: "disk-1 of node n1", command: "{.status.size}",
		},
		{
			name: "a replica cannot grow → which", ask: "volume v",
			change: func(w *world) {
				w.volumeSays(types.ConditionExpanded, longhorn.ConditionFalse, types.ReasonReplicaNotGrown, "waiting for replica v-r-2")
				condition(&w.Replicas[1].Status.Conditions, types.ConditionExpanded, longhorn.ConditionFalse, types.ReasonReplicaNotGrown, "no space left")
			},
			object: "replica v-r-2", severity: Warning, reason: types.ReasonReplicaNotGrown, what: "cannot grow", why: "no space left", command: "explain node n2",
		},
		{
			name: "best-effort without a local copy, whose node has no room → why", ask: "volume v",
			change: func(w *world) {
				w.v.Spec.DataLocality, w.v.Spec.NumberOfReplicas = longhorn.DataLocalityBestEffort, 2
				w.Replicas = w.Replicas[1:]
				w.e.Status.Epoch.Members = []string{"v-r-2", "v-r-3"}
				w.disk(1, func(s *longhorn.DiskSpec, _ *longhorn.DiskStatus) { s.AllowScheduling = false })
			},
			object: "volume v", severity: Info, reason: "NoLocalReplica", what: "no healthy replica on node n1", why: "node n1 disk disk-1: " + scheduler.ReasonDisksUnavailable, command: "explain node n1",
		},
		{
			name: "best-effort, and the condition says that none can be placed → the node's disks", ask: "volume v",
			change: func(w *world) {
				w.v.Spec.DataLocality = longhorn.DataLocalityBestEffort
				w.Replicas = w.Replicas[1:]
				w.Nodes[0].Spec.AllowScheduling = false
				w.volumeSays(types.ConditionScheduled, longhorn.ConditionFalse, types.ReasonLocalReplicaSchedulingFailure, "no replica can be placed on node n1")
			},
			object: "volume v", severity: Info, reason: types.ReasonLocalReplicaSchedulingFailure, what: "no copy on node n1", why: "node n1 disk disk-1: " + scheduler.ReasonNodesUnavailable, command: "explain node n1",
		},
		{
			name: "the share's pod fails again and again → how often, and its log", ask: "volume v",
			change: func(w *world) {
				sm := w.share(longhorn.ShareManagerStateError, types.ReasonPodFailed, "the share's pod stopped: exit code 1")
				sm.Status.Failures, sm.Status.FailedAt = 3, ago(time.Minute)
			},
			object: "share manager v", severity: Broken, reason: types.ReasonPodFailed, what: "not shared", why: "3 pods have failed", command: "logs share-manager-v",
		},
		{
			name: "the share does not start → what it waits for, and its pod", ask: "volume v",
			change: func(w *world) {
				w.share(longhorn.ShareManagerStateStarting, types.ReasonShareDelayed, "the share's pod has no node: 0/3 nodes are available")
			},
			object: "share manager v", severity: Broken, reason: types.ReasonShareDelayed, what: "has not started for a while", why: "the share's pod has no node: 0/3", command: "describe pod share-manager-v",
		},
		{
			name: "the share stops and another's pod may have the device → that pod", ask: "volume v",
			change: func(w *world) {
				w.share(longhorn.ShareManagerStateStopping, types.ReasonShareForeignPod, "pod share-manager-v exists, but this share manager does not own it")
			},
			object: "share manager v", severity: Broken, reason: types.ReasonShareForeignPod, what: "does not belong to the share", why: "exists, but this share manager does not own it", command: "delete pod share-manager-v",
		},
		{
			name: "the share's pod was given up → why", ask: "volume v",
			change: func(w *world) {
				w.share(longhorn.ShareManagerStateError, types.ReasonShareNotStarted, "the share's pod did not become ready within 5m0s: ErrImagePull")
			},
			object: "share manager v", severity: Broken, reason: types.ReasonShareNotStarted, what: "another pod is tried", why: "ErrImagePull", command: "describe lhv v",
		},
		{
			name: "the list of clients does not exist → no client may mount", ask: "volume v",
			change: func(w *world) {
				w.clients(types.ReasonClientsNotListed, "the list of clients does not exist yet")
			},
			object: "share manager v", severity: Warning, reason: types.ReasonClientsNotListed, what: "no client may mount", why: "does not exist yet", command: "get configmap longhorn-share-clients",
		},
		{
			name: "a list of an earlier release lets anyone in → where that is so", ask: "volume v",
			change: func(w *world) {
				w.clients(types.ReasonClientsNotKnown, "the addresses of node n2 are not known")
			},
			object: "share manager v", severity: Warning, reason: types.ReasonClientsNotKnown, what: "if the share's pod is of an earlier release", why: "node n2", command: "kubectl longhorn status",
		},
		{
			name: "a pod on a node without NFS client waits for the share → the client", ask: "volume v",
			change: func(w *world) {
				w.v.Spec.AccessMode = longhorn.AccessModeReadWriteMany
				w.ticket("n2", types.ReasonWaitingForShare, "its share manager is starting")
				w.nodeSays(2, types.ConditionNFSClientInstalled, longhorn.ConditionFalse, types.ReasonNFSClientNotFound, "no NFSv4 client loaded")
			},
			object: "node n2", severity: Broken, reason: types.ReasonNFSClientNotFound, what: "no NFS client", why: "shared volume v", command: "modprobe nfsv4",
		},
		{
			name: "the API server refuses a child → its message, whatever the reason", ask: "volume v",
			change: func(w *world) {
				w.volumeSays(types.ConditionChildRefused, longhorn.ConditionTrue, "Forbidden", "exceeded quota: no-more")
			},
			object: "volume v", severity: Broken, reason: "Forbidden", what: "API server refuses", why: "exceeded quota", command: "get resourcequota",
		},
		{
			name: "the device is in use → its users", ask: "volume v",
			change: func(w *world) {
				w.volumeSays(types.ConditionDeviceInUse, longhorn.ConditionTrue, types.ConditionDeviceInUse, "pid 17 (dd)")
			},
			object: "volume v", severity: Warning, reason: types.ConditionDeviceInUse, what: "in use", why: "pid 17", command: "lsof /dev/longhorn/v",
		},
		{
			name: "it is deleted, and its engine runs → what it waits for, and who else", ask: "volume v",
			change: func(w *world) {
				w.v.DeletionTimestamp = &metav1.Time{Time: now}
				w.v.Finalizers = []string{types.Finalizer, "shop.example/keep"}
			},
			object: "volume v", severity: Info, reason: "Deleting", what: "being deleted", why: "finalizers longhorn.io, shop.example/keep\nits engine on node n1 is running", command: "describe lhe v-e-0",
		},
		{
			name: "a copy is deleted, and its node is down → the node", ask: "volume v",
			change: func(w *world) {
				w.Replicas[2].DeletionTimestamp, w.Replicas[2].Finalizers = &metav1.Time{Time: now}, []string{types.Finalizer}
				w.nodeSays(3, types.ConditionReady, longhorn.ConditionFalse, types.ReasonKubernetesNodeNotReady, "no answer")
			},
			object: "replica v-r-3", severity: Warning, reason: "Deleting", what: "being deleted", why: "only node n3 can remove its data", command: "explain node n3",
		},
		{
			name: "a deleted copy is the last good one → it is kept", ask: "volume v",
			change: func(w *world) {
				w.Replicas[0].DeletionTimestamp = &metav1.Time{Time: now}
				condition(&w.Replicas[0].Status.Conditions, types.ConditionRemovable, longhorn.ConditionFalse, types.ReasonLastReplica, "no other copy is good")
			},
			object: "replica v-r-1", severity: Warning, reason: types.ReasonLastReplica, what: "is retained", why: "no other copy", command: "explain volume v",
		},
	})
}

func TestWhatIsOverIsNotTold(t *testing.T) {
	w := newWorld()
	w.detach()
	condition(&w.e.Status.Conditions, types.ConditionInstanceCreation, longhorn.ConditionFalse, types.ReasonEngineGone, "of an earlier attachment")
	condition(&w.Replicas[0].Status.Conditions, types.ConditionInstanceCreation, longhorn.ConditionFalse, types.ReasonTimedOut, "of an earlier start")
	sm := w.share(longhorn.ShareManagerStateStopped, types.ReasonShareNotUsed, "no workload uses the volume")
	if found := w.ask(t, "volume v"); len(found) != 0 {
		t.Errorf("a volume that is detached and well is told as %+v", found)
	}
	sm.Status.State = longhorn.ShareManagerStateStopping
	if found := w.ask(t, "volume v"); len(found) != 0 {
		t.Errorf("a share that stops is told as %+v", found)
	}
}

func TestWithoutTheRightToReadNothingIsConcluded(t *testing.T) {
	w := newWorld()
	unplaced(func(*world) {})(w)
	w.Unseen = []string{ResourceInstanceManagers, ResourceVolumes}
	w.InstanceManagers, w.Volumes = nil, nil
	for _, f := range w.ask(t, "all") {
		if f.Reason == "InstanceManagerMissing" || f.Reason == "Orphan" {
			t.Errorf("%v: it is told that something is missing which could not be read", f)
		}
	}
	if lines := lacksOf(&w.Snapshot, w.v, ""); lines != nil {
		t.Errorf("places are judged without the instance managers: %q", lines)
	}
}

// The leader may not have counted the replicas again, for example because its node has just failed.
func TestHealthyReplicasAreCountedBeforeTheLeaderDoes(t *testing.T) {
	w := newWorld()
	w.lose(3, "", "")
	w.v.Status.Robustness, w.v.Status.LastDegradedAt = longhorn.VolumeRobustnessHealthy, ""
	assert.Equal(t, longhorn.VolumeRobustnessDegraded, w.RobustnessOf(w.v))
	found := w.ask(t, "volume v")
	if len(found) != 1 || found[0].What != "volume v has 2 of 3 healthy replicas" {
		t.Errorf("with the stored robustness healthy and two healthy replicas it says %+v", found)
	}

	w = newWorld()
	w.v.Status.Robustness, w.v.Status.LastDegradedAt = longhorn.VolumeRobustnessDegraded, ago(time.Minute)
	assert.Equal(t, longhorn.VolumeRobustnessHealthy, w.RobustnessOf(w.v))
	if found := w.ask(t, "volume v"); len(found) > 0 {
		t.Errorf("with the stored robustness degraded and three healthy replicas it says %+v", found)
	}

	w.detach()
	assert.Equal(t, longhorn.VolumeRobustnessUnknown, w.RobustnessOf(w.v))
}

func TestAShareThatStartsNeedsNoAction(t *testing.T) {
	for name, tc := range map[string]struct {
		failures int
		want     Severity
	}{"for the first time": {0, Info}, "after a failure": {1, Warning}} {
		w := newWorld()
		w.share(longhorn.ShareManagerStateStarting, types.ReasonPodStarting, "m").Status.Failures = tc.failures
		w.ticket("n1", types.ReasonWaitingForShare, "waiting until volume v is served")
		for _, f := range w.ask(t, "volume v") {
			if f.Reason == types.ReasonWaitingForShare {
				assert.Equal(t, tc.want, f.Severity, name)
			}
		}
	}
}

// The node that serves a share needs no NFS client: only its clients do.
func TestTheNodeOfAShareNeedsNoNFSClient(t *testing.T) {
	w := newWorld()
	w.share(longhorn.ShareManagerStateRunning, "", "").Status.Conditions = nil
	w.nodeSays(1, types.ConditionNFSClientInstalled, longhorn.ConditionFalse, types.ReasonNFSClientNotFound, "no NFSv4 client loaded")
	_, _, pod := w.claimed()
	pod.Spec.NodeName = "n2"
	for _, f := range w.ask(t, "claim shop data") {
		assert.NotEqual(t, types.ReasonNFSClientNotFound, f.Reason)
	}
	pod.Spec.NodeName = "n1"
	waits(pod)
	var reasons []string
	for _, f := range w.ask(t, "claim shop data") {
		reasons = append(reasons, f.Reason)
	}
	assert.Contains(t, reasons, types.ReasonNFSClientNotFound, "a pod on this node waits for the volume")
}

func TestVolumesInTransitionNeedNoAction(t *testing.T) {
	for state, reason := range map[longhorn.VolumeState]string{longhorn.VolumeStateDetaching: "Detaching", longhorn.VolumeStateAttaching: "Attaching"} {
		w := newWorld()
		w.v.Status.State = state
		assert.Equal(t, "No action needed. If this lasts, see the engine's conditions and Events | kubectl -n longhorn-system describe lhe v-e-0", stepsOf(t, w, "volume v", reason))
	}
}

// Replicas on nodes that return would be surplus, and removed.
func TestNoCommandLowersTheReplicasWhileNodesMayReturn(t *testing.T) {
	w := newWorld()
	unplaced(func(*world) {})(w)
	for _, f := range w.ask(t, "volume v") {
		for _, step := range f.Next {
			assert.NotContains(t, step.Command, "numberOfReplicas", step.Text)
		}
	}
}
