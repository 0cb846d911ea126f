package drain

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// Input is the state of the whole cluster. Nothing in it is modified.
type Input struct {
	Policy    settings.DrainPolicy
	Managers  []*longhorn.InstanceManager
	Volumes   []*longhorn.Volume
	Engines   []*longhorn.Engine
	Replicas  []*longhorn.Replica
	Nodes     []*longhorn.Node
	KubeNodes []*corev1.Node
	// Budgets are all budgets of the namespace; those of other owners are not changed.
	Budgets []*policyv1.PodDisruptionBudget
	Now     time.Time
}

// Plan says what to do; apply has the order.
type Plan struct {
	Create []*policyv1.PodDisruptionBudget
	Update []*policyv1.PodDisruptionBudget
	// Delete has budgets that are not needed. They are deleted only if a live read confirms this.
	Delete []*policyv1.PodDisruptionBudget
	// Marks are replicas that have become the last healthy replica of their volume, or are no longer the last one.
	Marks []*longhorn.Replica
	// Statuses are InstanceManagers with a changed condition Drainable.
	Statuses []*longhorn.InstanceManager
}

// deletes reports whether the plan deletes the budget with that name.
func (p Plan) deletes(name string) bool {
	return slices.ContainsFunc(p.Delete, func(b *policyv1.PodDisruptionBudget) bool { return b.Name == name })
}

func plan(in Input) Plan {
	var p Plan
	budgets := map[string]*policyv1.PodDisruptionBudget{}
	for _, b := range in.Budgets {
		if isOf(b, types.ComponentInstanceManager) {
			budgets[b.Name] = b
		}
	}
	c, volumes := clusterOf(in), volumesOf(in)
	holds := in.holds(c, volumes)
	for _, m := range in.Managers {
		if m.DeletionTimestamp != nil {
			continue
		}
		h := holds[m.Spec.NodeID]
		p.planBudget(budgets[m.Name], newBudget(m), h != nil)
		delete(budgets, m.Name)
		if changed := withCondition(m, c.isCordoned(m.Spec.NodeID), h, in.Now); changed != nil {
			p.Statuses = append(p.Statuses, changed)
		}
	}
	for _, b := range in.Budgets { // in the order of the list
		if _, left := budgets[b.Name]; left && b.DeletionTimestamp == nil && !in.isManaged(b) {
			p.Delete = append(p.Delete, b)
		}
	}
	p.settleCSI(in, holds)
	p.Marks = in.marks(c, volumes)
	return p
}

// marks writes on replicas whether they are the last healthy replica of their volume: no other healthy replica is
// reachable. Neither a cordoned node nor the drain policy makes a difference.
func (in Input) marks(c cluster, volumes []volume) []*longhorn.Replica {
	last := map[string]bool{}
	for _, v := range volumes {
		for _, r := range v.good {
			last[r.Name] = !slices.ContainsFunc(v.good, func(o *longhorn.Replica) bool { return o != r && c.isReachable(o) })
		}
	}
	var changed []*longhorn.Replica
	for _, r := range in.Replicas {
		if _, marked := r.Annotations[types.AnnotationLastGoodCopy]; marked == last[r.Name] || r.DeletionTimestamp != nil {
			continue
		}
		u := r.DeepCopy()
		if last[r.Name] {
			if u.Annotations == nil {
				u.Annotations = map[string]string{}
			}
			u.Annotations[types.AnnotationLastGoodCopy] = ""
		} else {
			delete(u.Annotations, types.AnnotationLastGoodCopy)
		}
		changed = append(changed, u)
	}
	return changed
}

// isManaged reports whether a budget's instance manager still exists. It may be being deleted.
func (in Input) isManaged(b *policyv1.PodDisruptionBudget) bool {
	return slices.ContainsFunc(in.Managers, func(m *longhorn.InstanceManager) bool { return m.Name == b.Name })
}

// isOf reports whether this controller created a budget, for pods of that component.
func isOf(b *policyv1.PodDisruptionBudget, component string) bool {
	return b.Labels[types.LabelManagedBy] == types.ManagedByManager && b.Labels[types.LabelComponent] == component
}

// planBudget plans the change from budget b, nil if it does not exist, to the wanted one.
func (p *Plan) planBudget(b, wanted *policyv1.PodDisruptionBudget, keep bool) {
	switch {
	case keep && b == nil:
		p.Create = append(p.Create, wanted)
	case b == nil || b.DeletionTimestamp != nil:
	case !keep:
		p.Delete = append(p.Delete, b)
	case !equality.Semantic.DeepEqual(b.Spec, wanted.Spec):
		u := b.DeepCopy()
		u.Spec = wanted.Spec
		p.Update = append(p.Update, u)
	}
}

// withCondition returns an InstanceManager with a corrected condition Drainable, or nil if the condition is correct.
// The condition exists only while the node is cordoned.
func withCondition(m *longhorn.InstanceManager, cordoned bool, h *hold, now time.Time) *longhorn.InstanceManager {
	if !cordoned {
		rest := slices.DeleteFunc(slices.Clone(m.Status.Conditions), func(c longhorn.Condition) bool { return c.Type == types.ConditionDrainable })
		if len(rest) == len(m.Status.Conditions) {
			return nil
		}
		u := m.DeepCopy()
		u.Status.Conditions = rest
		return u
	}
	c := longhorn.Condition{Type: types.ConditionDrainable, Status: longhorn.ConditionTrue, Message: "the instance manager may be evicted"}
	if h != nil {
		c.Status = longhorn.ConditionFalse
		c.Reason, c.Message = h.explain()
	}
	conditions, changed := types.SetCondition(m.Status.Conditions, c, now)
	if !changed {
		return nil
	}
	u := m.DeepCopy()
	u.Status.Conditions = conditions
	return u
}

// newBudget prevents the eviction of an instance manager's pod. It uses minAvailable, because maxUnavailable would need
// a controller that can be scaled.
func newBudget(m *longhorn.InstanceManager) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: m.Namespace, Name: m.Name, Labels: types.InstanceManagerSelector(m.Spec.NodeID),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(m, longhorn.SchemeGroupVersion.WithKind("InstanceManager"))},
		},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: new(intstr.FromInt32(1)),
			Selector:     &metav1.LabelSelector{MatchLabels: types.InstanceManagerSelector(m.Spec.NodeID)},
		},
	}
}
