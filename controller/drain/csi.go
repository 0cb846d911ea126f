package drain

import (
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// settleCSI keeps one pod of the CSI controller while an engine runs anywhere, or is about to. The CSI controller
// detaches volumes. When all nodes are cordoned, an evicted pod of it finds no other node. Then no volume would be
// detached and no drain would finish.
//
// A drain of the pod's node finishes nevertheless: the pod may be evicted when another one is ready on another node,
// and when the last engine has stopped.
func (p *Plan) settleCSI(in Input, holds map[string]*hold) {
	var namespace string
	keep := false
	for _, h := range holds {
		if len(h.engines) > 0 {
			keep, namespace = true, in.Engines[0].Namespace // all engines are in one namespace
		}
	}
	var ours *policyv1.PodDisruptionBudget
	for _, b := range in.Budgets {
		switch {
		case isOf(b, types.ComponentCSIController):
			ours = b
		case b.Name == types.AppCSIController || selectsCSI(b):
			// a user's budget protects these pods; a pod that two budgets select cannot be evicted at all
			keep = false
		}
	}
	p.planBudget(ours, newCSIBudget(namespace), keep)
}

func selectsCSI(b *policyv1.PodDisruptionBudget) bool {
	selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
	return err == nil && selector.Matches(labels.Set{types.LabelApp: types.AppCSIController})
}

func newCSIBudget(namespace string) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: types.AppCSIController,
			Labels: map[string]string{types.LabelManagedBy: types.ManagedByManager, types.LabelComponent: types.ComponentCSIController},
		},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: new(intstr.FromInt32(1)),
			Selector:     &metav1.LabelSelector{MatchLabels: map[string]string{types.LabelApp: types.AppCSIController}},
		},
	}
}
