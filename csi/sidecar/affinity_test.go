package sidecar

import (
	"testing"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"
	provision "sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

func affinityFor(host string) *corev1.VolumeNodeAffinity {
	return &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "kubernetes.io/hostname", Operator: corev1.NodeSelectorOpIn, Values: []string{host}}},
	}}}}
}

// TestNodeAffinity: most clusters never allow a change of a node affinity, so the test checks the conditions for
// writing it.
func TestNodeAffinity(t *testing.T) {
	now := metav1.NewTime(time.Unix(1e9, 0))
	for _, c := range []struct {
		name       string
		attachment func(*storagev1.VolumeAttachment)
		pv         func(*corev1.PersistentVolume)
		node       func(*corev1.Node)
		want       *corev1.VolumeNodeAffinity
		err        string
	}{
		{name: "attached, strict-local, allowed → the node with the data", want: affinityFor("host-1")},
		{name: "not attached yet → none", attachment: func(a *storagev1.VolumeAttachment) { a.Status.Attached = false }},
		{name: "being detached → none", attachment: func(a *storagev1.VolumeAttachment) {
			a.DeletionTimestamp, a.Finalizers = &now, []string{"external-attacher/driver-longhorn-io"}
		}},
		{name: "not strict-local, or its data on several nodes → none", attachment: func(a *storagev1.VolumeAttachment) { a.Status.AttachmentMetadata = nil }},
		{name: "another driver's attachment → none", attachment: func(a *storagev1.VolumeAttachment) { a.Spec.Attacher = "other" }},
		{name: "no annotation → none", pv: func(pv *corev1.PersistentVolume) { pv.Annotations = nil }},
		{name: "a person took the permission back → none", pv: func(pv *corev1.PersistentVolume) { pv.Annotations[AnnotationAffinity] = "false" }},
		{name: "another driver's volume → none", pv: func(pv *corev1.PersistentVolume) { pv.Spec.CSI.Driver = "other" }},
		{name: "being deleted → none", pv: func(pv *corev1.PersistentVolume) { pv.DeletionTimestamp, pv.Finalizers = &now, []string{"x/y"} }},
		{name: "it has one → it stays", pv: func(pv *corev1.PersistentVolume) { pv.Spec.NodeAffinity = affinityFor("host-2") }, want: affinityFor("host-2")},
		{name: "a node without the label → none, and another attempt", node: func(n *corev1.Node) { n.Labels = nil }, err: "node n1 has no label kubernetes.io/hostname"},
	} {
		t.Run(c.name, func(t *testing.T) {
			attachment := &storagev1.VolumeAttachment{
				ObjectMeta: metav1.ObjectMeta{Name: "a1"},
				Spec:       storagev1.VolumeAttachmentSpec{Attacher: driverName, NodeName: "n1", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To("pv-1")}},
				Status:     storagev1.VolumeAttachmentStatus{Attached: true, AttachmentMetadata: map[string]string{KeyStrictLocalNode: "n1"}},
			}
			pv := &corev1.PersistentVolume{
				ObjectMeta: metav1.ObjectMeta{Name: "pv-1", UID: "u1", ResourceVersion: "7", Annotations: map[string]string{AnnotationAffinity: "true"}},
				Spec:       corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driverName, VolumeHandle: "v"}}},
			}
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"kubernetes.io/hostname": "host-1"}}}
			if c.attachment != nil {
				c.attachment(attachment)
			}
			if c.pv != nil {
				c.pv(pv)
			}
			if c.node != nil {
				c.node(node)
			}
			other := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n0", Labels: map[string]string{"kubernetes.io/hostname": "host-0"}}}
			kube := fake.NewClientset([]runtime.Object{attachment, pv, node, other}...)
			recorder := record.NewFakeRecorder(1)
			a := &affinities{kube: kube, driverName: driverName, recorder: recorder, log: quiet()}
			err := a.sync(t.Context(), "a1")
			if c.err == "" {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, c.err)
			}
			got, err := kube.CoreV1().PersistentVolumes().Get(t.Context(), "pv-1", metav1.GetOptions{})
			require.NoError(t, err)
			assert.Equal(t, c.want, got.Spec.NodeAffinity)
			assert.Equal(t, pv.Spec.CSI, got.Spec.CSI)
			isNew := c.want != nil && pv.Spec.NodeAffinity == nil
			for _, action := range kube.Actions() {
				if patch, ok := action.(k8stesting.PatchAction); ok {
					assert.True(t, isNew, "a patch")
					assert.Contains(t, string(patch.GetPatch()), `"metadata":{"resourceVersion":"7","uid":"u1"}`, "the patch is for what was read")
				}
			}
			assert.Len(t, recorder.Events, map[bool]int{true: 1}[isNew])
		})
	}
}

// TestAClassDecidesOnNodeAffinity: only volumes that are strict-local and created for a pod's node may get one. Only
// for them another node can be chosen.
func TestAClassDecidesOnNodeAffinity(t *testing.T) {
	for _, c := range []struct {
		name     string
		mode     *storagev1.VolumeBindingMode
		locality string
		node     string
		want     map[string]string
		state    provision.ProvisioningState // after ResourceExhausted
	}{
		{"strict-local, bound late", ptr.To(storagev1.VolumeBindingWaitForFirstConsumer), "strict-local", "n1", map[string]string{AnnotationAffinity: "true"}, provision.ProvisioningReschedule},
		{"strict-local, bound at once", ptr.To(storagev1.VolumeBindingImmediate), "strict-local", "", nil, provision.ProvisioningFinished},
		{"strict-local, no mode", nil, "strict-local", "", nil, provision.ProvisioningFinished},
		{"best-effort, bound late", ptr.To(storagev1.VolumeBindingWaitForFirstConsumer), "best-effort", "n1", nil, provision.ProvisioningFinished},
		{"no locality, bound late", ptr.To(storagev1.VolumeBindingWaitForFirstConsumer), "", "n1", nil, provision.ProvisioningFinished},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := &fakeDriver{answer: &csipb.Volume{VolumeId: "pvc-u1"}}
			p := provisionerOver(t, d)
			sc := class(map[string]string{"dataLocality": c.locality})
			sc.VolumeBindingMode = c.mode
			o := provision.ProvisionOptions{StorageClass: sc, PVName: "pvc-u1", PVC: claim(nil), SelectedNodeName: c.node}
			pv, _, err := p.Provision(t.Context(), o)
			require.NoError(t, err)
			assert.Equal(t, c.want, pv.Annotations)
			assert.Nil(t, pv.Spec.NodeAffinity, "its place is not final before it is attached")
			got := d.created[0].GetAccessibilityRequirements().GetPreferred()
			if c.node == "" {
				assert.Empty(t, got)
			} else {
				assert.Equal(t, map[string]string{"kubernetes.io/hostname": c.node}, got[0].GetSegments())
			}
			d.err = status.Error(codes.ResourceExhausted, "x")
			_, state, err := p.Provision(t.Context(), o)
			require.Error(t, err)
			assert.Equal(t, c.state, state)
			d.err = status.Error(codes.Unavailable, "x")
			_, state, err = p.Provision(t.Context(), o)
			require.Error(t, err)
			assert.Equal(t, provision.ProvisioningInBackground, state)
		})
	}
}
