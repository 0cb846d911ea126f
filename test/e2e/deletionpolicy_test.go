package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// TestWhatHoldsDataIsNotDeletedByHand checks the answers of a real API server to kubectl delete.
func TestWhatHoldsDataIsNotDeletedByHand(t *testing.T) {
	ctx, c := apiOnly.get(t, ordinary)
	definitions(ctx, t, c)
	api := c.Longhorn.LonghornV1beta2()
	in := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Namespace: types.Namespace}
	}
	last := &longhorn.Replica{ObjectMeta: in("q-r-last")}
	last.Annotations = map[string]string{types.AnnotationLastGoodCopy: ""}
	last.Spec.VolumeName, last.Spec.VolumeSize = "q", 2<<20
	other := &longhorn.Replica{ObjectMeta: in("q-r-other"), Spec: last.Spec}
	for _, r := range []*longhorn.Replica{last, other} {
		_, err := api.Replicas(types.Namespace).Create(ctx, r, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	for name, tickets := range map[string]map[string]longhorn.AttachmentTicket{
		"q": {"csi": {ID: "csi", Type: longhorn.AttacherTypeCSI, NodeID: "node-x"}}, "idle": nil,
	} {
		va := &longhorn.VolumeAttachment{ObjectMeta: in(name), Spec: longhorn.VolumeAttachmentSpec{Volume: name, AttachmentTickets: tickets}}
		_, err := api.VolumeAttachments(types.Namespace).Create(ctx, va, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	for _, node := range []string{"node-x", "node-y"} {
		im := &longhorn.InstanceManager{ObjectMeta: in("im-" + node)}
		im.Spec.NodeID, im.Spec.Image, im.Spec.Type = node, "example/image", longhorn.InstanceManagerTypeAllInOne
		_, err := api.InstanceManagers(types.Namespace).Create(ctx, im, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	for _, name := range []string{"q", "claimed", "idle"} {
		v := &longhorn.Volume{ObjectMeta: in(name), Spec: longhorn.VolumeSpec{Size: 2 << 20, DiskSelector: []string{}, NodeSelector: []string{}}}
		v, err := api.Volumes(types.Namespace).Create(ctx, v, metav1.CreateOptions{})
		require.NoError(t, err)
		v.Status.Conditions = []longhorn.Condition{}
		v.Status.State = longhorn.VolumeStateDetached
		if name == "q" {
			v.Status.State, v.Status.CurrentNodeID = longhorn.VolumeStateAttached, "node-x"
		}
		_, err = api.Volumes(types.Namespace).UpdateStatus(ctx, v, metav1.UpdateOptions{})
		require.NoError(t, err)
	}
	bound(ctx, t, c, "claimed")
	e := &longhorn.Engine{ObjectMeta: in("q-e-0")}
	e.Spec.VolumeName, e.Spec.VolumeSize, e.Spec.NodeID = "q", 2<<20, "node-x"
	e, err := api.Engines(types.Namespace).Create(ctx, e, metav1.CreateOptions{})
	require.NoError(t, err)
	e.Status.CurrentState = longhorn.InstanceStateRunning
	_, err = api.Engines(types.Namespace).UpdateStatus(ctx, e, metav1.UpdateOptions{})
	require.NoError(t, err)

	dry := metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}
	remove := map[string]func(name string, o metav1.DeleteOptions) error{
		"replica": func(n string, o metav1.DeleteOptions) error { return api.Replicas(types.Namespace).Delete(ctx, n, o) },
		"manager": func(n string, o metav1.DeleteOptions) error {
			return api.InstanceManagers(types.Namespace).Delete(ctx, n, o)
		},
		"volume": func(n string, o metav1.DeleteOptions) error { return api.Volumes(types.Namespace).Delete(ctx, n, o) },
		"attachment": func(n string, o metav1.DeleteOptions) error {
			return api.VolumeAttachments(types.Namespace).Delete(ctx, n, o)
		},
		"namespace": func(n string, o metav1.DeleteOptions) error { return c.Kube.CoreV1().Namespaces().Delete(ctx, n, o) },
		"definition": func(n string, _ metav1.DeleteOptions) error {
			_, err := c.Kubectl(ctx, "delete", "crd", n, "--dry-run=server")
			return err
		},
	}
	const uninstall = "holds the records of all volumes: it cannot be deleted, because the data of all volumes would be lost; to uninstall, follow docs/UNINSTALL.md"
	for _, tc := range []struct{ name, kind, object, refusal string }{
		{"the last healthy replica → refused", "replica", "q-r-last", "replica q-r-last is the last healthy replica of volume q (no other healthy replica available): it cannot be deleted; to delete the volume, run kubectl -n " + types.Namespace + " delete volumes.longhorn.io q"},
		{"an instance manager that runs an engine → refused", "manager", "im-node-x", "instance manager im-node-x runs the engine of volume q: it cannot be deleted, because access to the volume would be interrupted; to move the workloads of its node to other nodes, run kubectl drain node-x"},
		{"an attached volume → refused", "volume", "q", "volume q is in use (attached, node node-x): it cannot be deleted, because its data would be lost; delete the pods that use it, then its PersistentVolumeClaim"},
		{"the volume of a bound claim → refused", "volume", "claimed", "volume claimed has the data of PersistentVolumeClaim " + types.Namespace + "/claimed: it cannot be deleted while that claim exists"},
		{"the attachment of an attached volume → refused", "attachment", "q", "volume q is attached to node node-x: this object cannot be deleted, because access to the volume would be interrupted"},
		{"the namespace → refused", "namespace", types.Namespace, uninstall},
		{"a definition → refused", "definition", "volumes.longhorn.io", uninstall},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cluster.Eventually(ctx, t, time.Minute, "the policy and the kind of its parameters are known to the API server", func(context.Context) error {
				switch err := remove[tc.kind](tc.object, dry); {
				case err == nil:
					return errors.New("the deletion would have been allowed")
				case strings.Contains(err.Error(), "failed to configure policy"):
					return err
				}
				return nil
			})
			check(t, remove[tc.kind](tc.object, dry), tc.refusal)
		})
	}
	for kind, object := range map[string]string{"replica": "q-r-other", "manager": "im-node-y", "attachment": "idle", "volume": "idle"} {
		t.Run("another "+kind+" → accepted", func(t *testing.T) { check(t, remove[kind](object, metav1.DeleteOptions{}), "") })
	}
	const leader = "--as=system:serviceaccount:" + types.Namespace + ":" + types.LeaderAccount
	for object, refusal := range map[string]string{"q": "volume q is in use (attached, node node-x)", "claimed": "volume claimed has the data of PersistentVolumeClaim"} {
		_, err := c.Kubectl(ctx, "-n", types.Namespace, "delete", "volumes.longhorn.io", object, "--dry-run=server", leader)
		assert.ErrorContains(t, err, refusal, "by the account of the REST API")
	}
	// The account that normally deletes these objects deletes them here, so that nothing remains for other tests.
	for _, object := range []string{"replicas.longhorn.io/q-r-last", "engines.longhorn.io/q-e-0", "instancemanagers.longhorn.io/im-node-x", "volumeattachments.longhorn.io/q"} {
		c.Must(ctx, t, "-n", types.Namespace, "delete", object, leader)
	}
	for _, object := range []string{"volumes.longhorn.io/q", "volumes.longhorn.io/claimed"} {
		c.Must(ctx, t, "-n", types.Namespace, "delete", object, "--as=system:kube-controller-manager", "--as-group=system:masters")
	}
}

// bound creates the PersistentVolume of a volume, bound to a claim of that name.
func bound(ctx context.Context, t *testing.T, c *cluster.Cluster, volume string) {
	t.Helper()
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: volume},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain, StorageClassName: "none",
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: types.DriverName, VolumeHandle: volume}},
		},
	}
	_, err := c.Kube.CoreV1().PersistentVolumes().Create(ctx, pv, metav1.CreateOptions{})
	require.NoError(t, err)
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: volume, Namespace: types.Namespace},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: pv.Spec.AccessModes, Resources: corev1.VolumeResourceRequirements{Requests: pv.Spec.Capacity},
			StorageClassName: &pv.Spec.StorageClassName, VolumeName: volume,
		},
	}
	_, err = c.Kube.CoreV1().PersistentVolumeClaims(types.Namespace).Create(ctx, claim, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		c.Must(context.WithoutCancel(ctx), t, "-n", types.Namespace, "delete", "pvc", volume)
		c.Must(context.WithoutCancel(ctx), t, "delete", "pv", volume)
	})
	cluster.Eventually(ctx, t, time.Minute, "the claim is bound", func(ctx context.Context) error {
		now, err := c.Kube.CoreV1().PersistentVolumes().Get(ctx, volume, metav1.GetOptions{})
		if err == nil && now.Status.Phase != corev1.VolumeBound {
			err = fmt.Errorf("it is %s", now.Status.Phase)
		}
		return err
	})
}
