package types_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestTheLeaseOfANode(t *testing.T) {
	holder, nobody := "n", ""
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "node-n", Labels: map[string]string{types.LabelNodeLease: "n"}}}
	assert.Equal(t, "n", types.NodeOfLease(l))
	assert.False(t, types.IsNodeLeaseHeld(l))
	l.Spec.HolderIdentity = &holder
	assert.False(t, types.IsNodeLeaseHeld(l), "never renewed")
	l.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
	assert.True(t, types.IsNodeLeaseHeld(l))
	l.Spec.HolderIdentity = &nobody
	assert.False(t, types.IsNodeLeaseHeld(l), "given back")
	l.Labels[types.LabelNodeLease] = "m"
	assert.Empty(t, types.NodeOfLease(l), "its name is another node's")
	l.Labels = nil
	assert.Empty(t, types.NodeOfLease(l))
}

func TestWhichPodServesAShare(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: types.ShareManagerSelector("vol")}}
	assert.True(t, types.IsSharePod(pod), "it is about to")
	pod.Status.Phase = corev1.PodSucceeded
	assert.False(t, types.IsSharePod(pod))
	pod.Status.Phase = corev1.PodRunning
	assert.True(t, types.IsSharePod(pod))
	pod.Labels = nil
	assert.False(t, types.IsSharePod(pod))
}
