package drain

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

var now = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

// world has nodes a, b and c, all ready, each with an instance manager.
func world(changes ...func(*Input)) Input {
	in := Input{Policy: settings.DrainBlockIfLastReplica, Now: now}
	for _, n := range []string{"a", "b", "c"} {
		in.Nodes = append(in.Nodes, build.ReadyNode(n, "disk-"+n))
		in.KubeNodes = append(in.KubeNodes, build.KubeNode(n))
		in.Managers = append(in.Managers, build.RunningInstanceManager(n, "10.0.0.1", "process"))
	}
	for _, change := range changes {
		change(&in)
	}
	return in
}

func policy(p settings.DrainPolicy) func(*Input) { return func(in *Input) { in.Policy = p } }

// stopped is a volume that was attached once and is now detached, with members on these nodes.
func stopped(volume string, nodes ...string) func(*Input) {
	return func(in *Input) {
		e := build.Engine(volume, func(e *longhorn.Engine) { e.Status.CurrentState = longhorn.InstanceStateStopped })
		e.Status.Epoch = &longhorn.Epoch{Generation: 1, Counter: 1}
		for _, n := range nodes {
			r := build.PlacedReplica(volume+"-r-"+n, volume, n, "disk-"+n, func(r *longhorn.Replica) { r.Status.CurrentState = longhorn.InstanceStateStopped })
			e.Status.Epoch.Members = append(e.Status.Epoch.Members, r.Name)
			in.Replicas = append(in.Replicas, r)
		}
		in.Engines = append(in.Engines, e)
		in.Volumes = append(in.Volumes, build.Volume(volume))
	}
}

// strictLocal makes the last volume strict-local.
func strictLocal(in *Input) {
	in.Volumes[len(in.Volumes)-1].Spec.DataLocality = longhorn.DataLocalityStrictLocal
}

// attached is a volume with an engine on a node, and with members that serve on these nodes.
func attached(volume, node string, nodes ...string) func(*Input) {
	return func(in *Input) {
		stopped(volume, nodes...)(in)
		e := in.Engines[len(in.Engines)-1]
		e.Spec.NodeID, e.Spec.DesireState, e.Status.CurrentState = node, longhorn.DesireStateRunning, longhorn.InstanceStateRunning
		e.Status.ReplicaModeMap = map[string]longhorn.ReplicaMode{}
		for _, r := range in.Replicas {
			if r.Spec.VolumeName == volume {
				r.Spec.DesireState, r.Status.CurrentState = longhorn.DesireStateRunning, longhorn.InstanceStateRunning
				e.Status.ReplicaModeMap[r.Name] = longhorn.ReplicaModeRW
			}
		}
	}
}

func replica(name string, change func(*longhorn.Replica)) func(*Input) {
	return func(in *Input) {
		for _, r := range in.Replicas {
			if r.Name == name {
				change(r)
			}
		}
	}
}

func engine(change func(*longhorn.Engine)) func(*Input) {
	return func(in *Input) { change(in.Engines[0]) }
}

func cordoned(node string, at time.Time) func(*Input) {
	return func(in *Input) {
		for _, n := range in.KubeNodes {
			if n.Name == node {
				n.Spec.Unschedulable = true
				n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule, TimeAdded: &metav1.Time{Time: at}}}
			}
		}
	}
}

// justCordoned is a cordoned node that has no time yet: its taint comes a moment later.
func justCordoned(node string) func(*Input) {
	return func(in *Input) {
		cordoned(node, now)(in)
		for _, n := range in.KubeNodes {
			if n.Name == node {
				n.Spec.Taints = nil
			}
		}
	}
}

func notReady(node, reason string) func(*Input) {
	return func(in *Input) {
		for _, n := range in.Nodes {
			if n.Name == node {
				n.Status.Conditions = []longhorn.Condition{{Type: types.ConditionReady, Status: longhorn.ConditionFalse, Reason: reason}}
			}
		}
	}
}

func mode(name string, m longhorn.ReplicaMode) func(*Input) {
	return engine(func(e *longhorn.Engine) { e.Status.ReplicaModeMap[name] = m })
}

func TestWhichNodesAreKept(t *testing.T) {
	failed := func(r *longhorn.Replica) { r.Spec.FailedAt = "2030-01-01T00:00:00Z" }
	deleted := func(r *longhorn.Replica) { r.DeletionTimestamp = &metav1.Time{Time: now} }
	for _, tc := range []struct {
		name string
		in   Input
		kept []string
	}{
		{"nothing on any node → none is kept", world(), nil},
		{"an engine runs → its node is kept, and those of its copies", world(attached("v", "a", "b", "c")), []string{"a", "b", "c"}},
		{"an engine runs on a cordoned node → it is kept, and so are those of its copies", world(attached("v", "a", "a", "b"), cordoned("a", now)), []string{"a", "b"}},
		{"an engine runs, under always-allow → its node is kept", world(policy(settings.DrainAlwaysAllow), attached("v", "a", "a", "b")), []string{"a"}},
		{"an engine must run and does not run yet → its node is kept", world(policy(settings.DrainAlwaysAllow), attached("v", "a", "a", "b"), engine(func(e *longhorn.Engine) { e.Status.CurrentState = "" })), []string{"a"}},
		{"an engine is stopping → its node is kept", world(policy(settings.DrainAlwaysAllow), attached("v", "a", "a", "b"), engine(func(e *longhorn.Engine) {
			e.Spec.DesireState, e.Status.CurrentState = longhorn.DesireStateStopped, longhorn.InstanceStateStopping
		})), []string{"a"}},
		{"no node is cordoned → each healthy replica keeps its node", world(stopped("v", "a", "b")), []string{"a", "b"}},
		{"no node is cordoned, attached, under allow-if-replica-is-stopped → each copy that runs keeps its node", world(policy(settings.DrainAllowIfStopped), attached("v", "c", "a", "b")), []string{"a", "b", "c"}},
		{"no node is cordoned, detached, under allow-if-replica-is-stopped → none is kept", world(policy(settings.DrainAllowIfStopped), stopped("v", "a", "b")), nil},
		{"no node is cordoned, attached, under always-allow → only the engine's node is kept", world(policy(settings.DrainAlwaysAllow), attached("v", "c", "a", "b")), []string{"c"}},
		{"two drains at once, one node is seen cordoned → the other stays", world(attached("v", "c", "a", "b"), cordoned("a", now)), []string{"b", "c"}},
		{"the engine's node and two with copies, of which one is cordoned → the others stay", world(attached("v", "c", "a", "b", "c"), cordoned("a", now)), []string{"b", "c"}},
		{"two of three copies are on cordoned nodes → only the third is kept", world(stopped("v", "a", "b", "c"), cordoned("a", now), cordoned("b", now)), []string{"c"}},
		{"cordoned, attached elsewhere, one of two that run, under allow-if-replica-is-stopped → it may go", world(policy(settings.DrainAllowIfStopped), attached("v", "c", "a", "b"), cordoned("a", now)), []string{"b", "c"}},
		{"an engine elsewhere, the only member here → both are kept", world(attached("v", "a", "b")), []string{"a", "b"}},
		{"detached, the only copy → its node is kept", world(stopped("v", "b")), []string{"b"}},
		{"detached, the only copy, under always-allow → none is kept", world(policy(settings.DrainAlwaysAllow), stopped("v", "b")), nil},
		{"detached, the only copy, under allow-if-replica-is-stopped → none is kept", world(policy(settings.DrainAllowIfStopped), stopped("v", "b")), nil},
		{"detached, the only copy, under block-for-eviction-if-contains-last-replica → its node is kept", world(policy(settings.DrainBlockForEvictionIfLastReplica), stopped("v", "b")), []string{"b"}},
		{"attached elsewhere, the only copy, under allow-if-replica-is-stopped → both are kept", world(policy(settings.DrainAllowIfStopped), attached("v", "a", "b")), []string{"a", "b"}},
		{"attached elsewhere, the only copy, under always-allow → the engine's node is kept", world(policy(settings.DrainAlwaysAllow), attached("v", "a", "b")), []string{"a"}},
		{"two copies, under block-for-eviction → both are kept", world(policy(settings.DrainBlockForEviction), stopped("v", "a", "b")), []string{"a", "b"}},
		{"two copies, one on a cordoned node, under block-for-eviction → both are kept", world(policy(settings.DrainBlockForEviction), stopped("v", "a", "b"), cordoned("a", now)), []string{"a", "b"}},
		{"a failed copy, under block-for-eviction → the other is kept", world(policy(settings.DrainBlockForEviction), stopped("v", "a", "b"), replica("v-r-a", failed)), []string{"b"}},
		{"never started, so without data → none is kept", world(stopped("v", "b"), engine(func(e *longhorn.Engine) { e.Status.Epoch = nil })), nil},
		{"cordoned, the other member is being rebuilt → the good one is kept", world(attached("v", "c", "a", "b"), cordoned("b", now), mode("v-r-a", longhorn.ReplicaModeWO)), []string{"b", "c"}},
		{"cordoned, the other copy failed → the good one is kept", world(stopped("v", "a", "b"), cordoned("b", now), replica("v-r-a", failed)), []string{"b"}},
		{"cordoned, the other copy is being deleted → the good one is kept", world(stopped("v", "a", "b"), cordoned("b", now), replica("v-r-a", deleted)), []string{"b"}},
		{"cordoned, the other copy is no member → the good one is kept", world(stopped("v", "a", "b"), cordoned("b", now), engine(func(e *longhorn.Engine) { e.Status.Epoch.Members = []string{"v-r-b"} })), []string{"b"}},
		{"cordoned, the other copy's node does not answer → the good one is kept", world(stopped("v", "a", "b"), cordoned("b", now), notReady("a", types.ReasonKubernetesNodeNotReady)), []string{"a", "b"}},
		{"cordoned, the other copy's daemon alone is missing → it may go", world(stopped("v", "a", "b"), cordoned("b", now), notReady("a", types.ReasonManagerPodMissing)), []string{"a"}},
		{"cordoned, the other copy's disk is not ready → the good one is kept", world(stopped("v", "a", "b"), cordoned("b", now), func(in *Input) {
			s := in.Nodes[0].Status.DiskStatus["disk-1"]
			s.Conditions = []longhorn.Condition{{Type: types.ConditionReady, Status: longhorn.ConditionFalse}}
			in.Nodes[0].Status.DiskStatus["disk-1"] = s
		}), []string{"a", "b"}},
		{"the volume is being deleted → none is kept", world(stopped("v", "b"), func(in *Input) { in.Volumes[0].DeletionTimestamp = &metav1.Time{Time: now} }), nil},
		{"the volume is being deleted, under block-for-eviction → none is kept", world(policy(settings.DrainBlockForEviction), stopped("v", "b"), func(in *Input) { in.Volumes[0].DeletionTimestamp = &metav1.Time{Time: now} }), nil},
		{"the copy is being deleted, under block-for-eviction → none is kept", world(policy(settings.DrainBlockForEviction), stopped("v", "b"), replica("v-r-b", deleted)), nil},
		{"the volume's object is gone, its copy and record are there → its node is kept", world(stopped("v", "b"), func(in *Input) { in.Volumes = nil }), []string{"b"}},
		{"a cordoned node has the other copy → the node that is not cordoned is kept", world(stopped("v", "a", "b"), cordoned("a", now)), []string{"b"}},
		{"both are cordoned → the one cordoned last is kept", world(stopped("v", "a", "b"), cordoned("a", now), cordoned("b", now.Add(-time.Minute))), []string{"a"}},
		{"both are cordoned at once → the last by name is kept", world(stopped("v", "a", "b"), cordoned("a", now), cordoned("b", now)), []string{"b"}},
		{"both are cordoned, one so lately that its time is not noted → that one is kept", world(stopped("v", "a", "b"), justCordoned("a"), cordoned("b", now)), []string{"a"}},
		{"both are cordoned, the other so lately that its time is not noted → that one is kept", world(stopped("v", "a", "b"), cordoned("a", now), justCordoned("b")), []string{"b"}},
		{"both are cordoned, and no time is noted → the last by name is kept", world(stopped("v", "a", "b"), justCordoned("a"), justCordoned("b")), []string{"b"}},
		{"all three are cordoned → the one cordoned last is kept", world(stopped("v", "a", "b", "c"), cordoned("a", now), cordoned("b", now.Add(time.Minute)), cordoned("c", now)), []string{"b"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var kept []string
			for _, b := range plan(tc.in).Create {
				if node, ok := b.Spec.Selector.MatchLabels[types.LabelNodeName]; ok {
					kept = append(kept, node)
				}
			}
			assert.Equal(t, tc.kept, kept)
		})
	}
}

// budgetOf is the budget of a node's instance manager, as the controller creates it.
func budgetOf(node string, changes ...func(*policyv1.PodDisruptionBudget)) *policyv1.PodDisruptionBudget {
	b := newBudget(build.InstanceManager(node))
	b.UID = "uid-budget-" + b.UID
	for _, change := range changes {
		change(b)
	}
	return b
}

func TestBudgetsFollow(t *testing.T) {
	with := func(budgets ...*policyv1.PodDisruptionBudget) func(*Input) {
		return func(in *Input) { in.Budgets = budgets }
	}
	a := types.InstanceManagerName("a")
	for _, tc := range []struct {
		name                   string
		in                     Input
		create, update, delete []string
	}{
		{"wanted, and there → nothing", world(attached("v", "a", "a"), with(budgetOf("a"))), nil, nil, nil},
		{"wanted, and not there → made", world(attached("v", "a", "a")), []string{a}, nil, nil},
		{"wanted, and changed by hand → mended", world(attached("v", "a", "a"), with(budgetOf("a", func(b *policyv1.PodDisruptionBudget) { b.Spec.MinAvailable = nil }))), nil, []string{a}, nil},
		{"wanted, and on its way out → waits", world(attached("v", "a", "a"), with(budgetOf("a", func(b *policyv1.PodDisruptionBudget) { b.DeletionTimestamp = &metav1.Time{Time: now} }))), nil, nil, nil},
		{"not wanted, and there → deleted", world(with(budgetOf("a"))), nil, nil, []string{a}},
		{"of an instance manager that is gone → deleted", world(with(budgetOf("gone"))), nil, nil, []string{types.InstanceManagerName("gone")}},
		{"of somebody else → left alone", world(with(budgetOf("gone", func(b *policyv1.PodDisruptionBudget) { b.Labels = nil }))), nil, nil, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := plan(tc.in)
			names := func(budgets []*policyv1.PodDisruptionBudget) (all []string) {
				for _, b := range budgets {
					if b.Name != types.AppCSIController {
						all = append(all, b.Name)
					}
				}
				return all
			}
			assert.Equal(t, tc.create, names(p.Create), "made")
			assert.Equal(t, tc.update, names(p.Update), "changed")
			assert.Equal(t, tc.delete, names(p.Delete), "deleted")
		})
	}
}

func TestABudgetHoldsOnePod(t *testing.T) {
	b := budgetOf("a")
	assert.Equal(t, int32(1), b.Spec.MinAvailable.IntVal)
	assert.Nil(t, b.Spec.MaxUnavailable)
	assert.Equal(t, map[string]string{
		"longhorn.io/managed-by": "longhorn-manager", "longhorn.io/component": "instance-manager", "longhorn.io/node": "a",
	}, b.Spec.Selector.MatchLabels)
	page, err := os.ReadFile("../../docs/UPGRADE.md")
	require.NoError(t, err)
	assert.Contains(t, string(page), "delete poddisruptionbudgets -l longhorn.io/managed-by=longhorn-manager\n", "so they go by hand where the release has no such controller")
	require.Len(t, b.OwnerReferences, 1)
	assert.Equal(t, "InstanceManager", b.OwnerReferences[0].Kind)

	long := "a-very-long-node-name.of-a-very-long-zone.of-a-very-long-region.example.com"
	assert.Equal(t, types.NodeLabel(long), types.InstanceManagerSelector(long)["longhorn.io/node"])
}

func TestACordonedNodeSaysWhatItWaitsFor(t *testing.T) {
	condition := func(status longhorn.ConditionStatus, reason, message string) *longhorn.Condition {
		return &longhorn.Condition{Type: "Drainable", Status: status, Reason: reason, Message: message, LastTransitionTime: "2030-01-02T03:04:05Z"}
	}
	for _, tc := range []struct {
		name string
		in   Input
		want *longhorn.Condition
	}{
		{"not cordoned → nothing is said", world(attached("v", "a", "a")), nil},
		{"cordoned, and idle → it may go", world(cordoned("a", now)), condition("True", "", "the instance manager may be evicted")},
		{
			"cordoned, and volumes are attached → named", world(cordoned("a", now), attached("w", "a", "b"), attached("v", "a", "b")),
			condition("False", "EngineRuns", "attached to this node: volumes v, w; the node can be drained after each of them is detached"),
		},
		{
			"cordoned, with the last copy → named", world(cordoned("a", now), stopped("v", "a")),
			condition("False", "LastReplica", "this node has the last healthy replica of volume v; the node can be drained after a node that is not being drained has another healthy replica"),
		},
		{
			"cordoned, with the last copies, one strict-local → that one does not leave, and what helps is said",
			world(cordoned("a", now), stopped("v", "a"), stopped("w", "a"), strictLocal),
			condition("False", "LastReplica", "this node has the last healthy replica of volumes v, w; the node can be drained after a node that is not being drained has another healthy replica; "+
				"volume w cannot move because dataLocality is strict-local: change dataLocality while detached, or set node-drain-policy to allow-if-replica-is-stopped"),
		},
		{
			"cordoned, its copy is to be evicted, but strict-local → the same", world(cordoned("a", now), policy(settings.DrainBlockForEviction), stopped("w", "a"), strictLocal),
			condition("False", "HasReplicas", "this node has replicas of volume w; the node can be drained after they are moved to other nodes; "+
				"volume w cannot move because dataLocality is strict-local: change dataLocality while detached, or set node-drain-policy to allow-if-replica-is-stopped"),
		},
		{
			"cordoned, with copies of seven volumes → five are named", world(cordoned("a", now), policy(settings.DrainBlockForEviction),
				stopped("v1", "a"), stopped("v2", "a"), stopped("v3", "a"), stopped("v4", "a"), stopped("v5", "a"), stopped("v6", "a"), stopped("v7", "a")),
			condition("False", "HasReplicas", "this node has replicas of volumes v1, v2, v3, v4, v5 and 2 more; the node can be drained after they are moved to other nodes"),
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := plan(tc.in)
			if tc.want == nil {
				assert.Empty(t, p.Statuses)
				return
			}
			require.Len(t, p.Statuses, 1)
			assert.Equal(t, types.InstanceManagerName("a"), p.Statuses[0].Name)
			assert.Equal(t, *tc.want, types.FindCondition(p.Statuses[0].Status.Conditions, types.ConditionDrainable))
			tc.in.Managers[0] = p.Statuses[0]
			assert.Empty(t, plan(tc.in).Statuses, "said twice")
			cordoned("a", now)(&tc.in)
			tc.in.KubeNodes[0].Spec.Unschedulable = false
			p = plan(tc.in)
			require.Len(t, p.Statuses, 1)
			assert.Empty(t, p.Statuses[0].Status.Conditions, "uncordoned, and still said")
		})
	}
}

func TestTicketsOfPeopleLeaveACordonedNode(t *testing.T) {
	ticket := func(kind longhorn.AttacherType, node string) longhorn.AttachmentTicket {
		return longhorn.AttachmentTicket{Type: kind, NodeID: node}
	}
	va := build.VolumeAttachment("v", func(va *longhorn.VolumeAttachment) {
		va.Spec.AttachmentTickets = map[string]longhorn.AttachmentTicket{
			"person":    ticket(longhorn.AttacherTypeAPI, "a"),
			"elsewhere": ticket(longhorn.AttacherTypeAPI, "b"),
			"workload":  ticket(longhorn.AttacherTypeCSI, "a"),
		}
	})
	all := []*longhorn.VolumeAttachment{va, build.VolumeAttachment("w")}
	assert.Empty(t, planDetach(all, clusterOf(world())))
	changed := planDetach(all, clusterOf(world(cordoned("a", now))))
	require.Len(t, changed, 1)
	assert.Equal(t, map[string]longhorn.AttachmentTicket{
		"elsewhere": ticket(longhorn.AttacherTypeAPI, "b"), "workload": ticket(longhorn.AttacherTypeCSI, "a"),
	}, changed[0].Spec.AttachmentTickets)
	assert.Len(t, va.Spec.AttachmentTickets, 3, "what the cache holds was modified")
}
