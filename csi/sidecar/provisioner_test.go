package sidecar

import (
	"context"
	"errors"
	"io"
	"math"
	"testing"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	provision "sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

const driverName = "driver.longhorn.io"

// fakeDriver is the driver's controller service, as a client sees it.
type fakeDriver struct {
	csipb.ControllerClient
	created []*csipb.CreateVolumeRequest
	deleted []string
	answer  *csipb.Volume
	err     error
}

func (d *fakeDriver) CreateVolume(_ context.Context, req *csipb.CreateVolumeRequest, _ ...grpc.CallOption) (*csipb.CreateVolumeResponse, error) {
	d.created = append(d.created, req)
	return &csipb.CreateVolumeResponse{Volume: d.answer}, d.err
}

func (d *fakeDriver) DeleteVolume(_ context.Context, req *csipb.DeleteVolumeRequest, _ ...grpc.CallOption) (*csipb.DeleteVolumeResponse, error) {
	d.deleted = append(d.deleted, req.VolumeId)
	return &csipb.DeleteVolumeResponse{}, d.err
}

func quiet() *logrus.Entry {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return logrus.NewEntry(log)
}

func attachmentLister(t *testing.T, list ...*storagev1.VolumeAttachment) storagelisters.VolumeAttachmentLister {
	t.Helper()
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for _, a := range list {
		require.NoError(t, indexer.Add(a))
	}
	return storagelisters.NewVolumeAttachmentLister(indexer)
}

func provisionerOver(t *testing.T, d *fakeDriver, attachments ...*storagev1.VolumeAttachment) *Provisioner {
	return &Provisioner{
		driver: d, driverName: driverName, identity: "pod-1", multiWriter: true,
		attachments: attachmentLister(t, attachments...), log: quiet(),
	}
}

func claim(change func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	className := "longhorn"
	c := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "data", UID: "u1"},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &className,
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("64Mi")},
			},
		},
	}
	if change != nil {
		change(c)
	}
	return c
}

func class(params map[string]string) *storagev1.StorageClass {
	retain := corev1.PersistentVolumeReclaimRetain
	return &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "longhorn"}, Provisioner: driverName, Parameters: params,
		ReclaimPolicy: &retain, MountOptions: []string{"noatime"},
	}
}

func block(c *corev1.PersistentVolumeClaim) {
	mode := corev1.PersistentVolumeBlock
	c.Spec.VolumeMode = &mode
}

func TestProvisionAFilesystemVolume(t *testing.T) {
	d := &fakeDriver{answer: &csipb.Volume{
		VolumeId: "pvc-u1", CapacityBytes: 66 << 20, VolumeContext: map[string]string{"numberOfReplicas": "3", "share": "false"},
	}}
	params := map[string]string{"numberOfReplicas": "3", "csi.storage.k8s.io/fstype": "xfs", "fromBackup": ""}
	pv, state, err := provisionerOver(t, d).Provision(t.Context(), provision.ProvisionOptions{StorageClass: class(params), PVName: "pvc-u1", PVC: claim(nil)})
	require.NoError(t, err)
	require.Equal(t, provision.ProvisioningFinished, state)
	req := d.created[0]
	wantParams := map[string]string{
		"numberOfReplicas": "3", "fromBackup": "",
		"csi.storage.k8s.io/pvc/name": "data", "csi.storage.k8s.io/pvc/namespace": "default", "csi.storage.k8s.io/pv/name": "pvc-u1",
	}
	c := req.VolumeCapabilities[0]
	assert.Equal(t, "pvc-u1", req.Name)
	assert.Equal(t, int64(64<<20), req.CapacityRange.RequiredBytes)
	assert.Zero(t, req.CapacityRange.LimitBytes)
	assert.Equal(t, wantParams, req.Parameters)
	assert.Equal(t, csipb.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER, c.GetAccessMode().GetMode())
	assert.Equal(t, "xfs", c.GetMount().GetFsType())
	assert.Equal(t, []string{"noatime"}, c.GetMount().GetMountFlags())
	filesystem := corev1.PersistentVolumeFilesystem
	want := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pvc-u1"},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, MountOptions: []string{"noatime"},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain, VolumeMode: &filesystem,
			Capacity: corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(66<<20, resource.BinarySI)},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: driverName, VolumeHandle: "pvc-u1", FSType: "xfs",
				VolumeAttributes: map[string]string{
					"numberOfReplicas": "3", "share": "false", "storage.kubernetes.io/csiProvisionerIdentity": "pod-1-driver.longhorn.io",
				},
			}},
		},
	}
	assert.Equal(t, want, pv)
}

func TestProvisionCapabilities(t *testing.T) {
	mode := func(modes ...corev1.PersistentVolumeAccessMode) func(*corev1.PersistentVolumeClaim) {
		return func(c *corev1.PersistentVolumeClaim) { c.Spec.AccessModes = modes }
	}
	cases := []struct {
		name        string
		claim       func(*corev1.PersistentVolumeClaim)
		multiWriter bool
		want        csipb.VolumeCapability_AccessMode_Mode
	}{
		{"ReadWriteOnce, the driver knows the newer modes", mode(corev1.ReadWriteOnce), true, csipb.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER},
		{"ReadWriteOnce, it does not", mode(corev1.ReadWriteOnce), false, csipb.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		{"ReadWriteOncePod", mode(corev1.ReadWriteOncePod), true, csipb.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER},
		{"ReadWriteMany, for the driver to refuse", mode(corev1.ReadWriteMany), true, csipb.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER},
		{"block", block, true, csipb.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			d := &fakeDriver{answer: &csipb.Volume{VolumeId: "pvc-u1"}}
			p := provisionerOver(t, d)
			p.multiWriter = c.multiWriter
			pv, _, err := p.Provision(t.Context(), provision.ProvisionOptions{StorageClass: class(nil), PVName: "pvc-u1", PVC: claim(c.claim)})
			require.NoError(t, err)
			got := d.created[0].VolumeCapabilities[0]
			assert.Equal(t, c.want, got.AccessMode.Mode)
			isBlock := c.name == "block"
			assert.Equal(t, isBlock, got.GetBlock() != nil, "capability %v", got)
			assert.NotEqual(t, isBlock, got.GetMount() != nil)
			fsType := pv.Spec.CSI.FSType
			if isBlock {
				assert.Empty(t, fsType)
			}
			if !isBlock {
				assert.Equal(t, "ext4", fsType, "file system type")
			}
			assert.Equal(t, isBlock, *pv.Spec.VolumeMode == corev1.PersistentVolumeBlock, "volume mode %s", *pv.Spec.VolumeMode)
		})
	}
}

func TestProvisionRefusesBeforeItAsksTheDriver(t *testing.T) {
	cases := []struct {
		name   string
		params map[string]string
		claim  func(*corev1.PersistentVolumeClaim)
		text   string
	}{
		{name: "an unknown reserved parameter", params: map[string]string{"csi.storage.k8s.io/colour": "blue"}, text: "csi.storage.k8s.io/colour"},
		{name: "a secret that nobody would use", params: map[string]string{"csi.storage.k8s.io/node-stage-secret-name": "s"}, text: "node-stage-secret-name"},
		{name: "two file systems", params: map[string]string{"csi.storage.k8s.io/fstype": "xfs", "fsType": "ext4"}, text: "contradict"},
		{name: "a selector", claim: func(c *corev1.PersistentVolumeClaim) { c.Spec.Selector = &metav1.LabelSelector{} }, text: "selector"},
		{name: "a file system, misspelt", params: map[string]string{"csi.storage.k8s.io/fsType": "xfs"}, text: "did you mean csi.storage.k8s.io/fstype?"},
		{name: "a fault of the driver's parameters", params: map[string]string{"numberOfReplica": "2"}, text: "storage class longhorn: numberOfReplica is wrong; a class cannot be changed"},
		{
			name: "a class of volume attributes", claim: func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeAttributesClassName = ptr.To("gold") },
			text: `claim default/data: volumeAttributesClassName "gold": volume attributes classes are not supported; create the claim again without this field`,
		},
		{name: "a data source", claim: func(c *corev1.PersistentVolumeClaim) { c.Spec.DataSource = &corev1.TypedLocalObjectReference{} }, text: "data source"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			d := &fakeDriver{}
			p := provisionerOver(t, d)
			p.check = func(params map[string]string) error {
				if _, found := params["numberOfReplica"]; found {
					return errors.New("numberOfReplica is wrong")
				}
				return nil
			}
			_, state, err := p.Provision(t.Context(), provision.ProvisionOptions{StorageClass: class(c.params), PVName: "pvc-u1", PVC: claim(c.claim)})
			assert.ErrorContains(t, err, c.text)
			assert.Equal(t, provision.ProvisioningNoChange, state, "an earlier attempt may have made a volume, which must not be forgotten")
			assert.Empty(t, d.created, "the driver was asked")
		})
	}
}

func TestProvisionAsksForWhatTheClaimSays(t *testing.T) {
	for _, c := range []struct {
		name, request, limit string
		wantRequired         int64
		wantLimit            int64
	}{
		{name: "bytes → as they are", request: "67108864", wantRequired: 64 << 20},
		{name: "a limit → passed on", request: "64Mi", limit: "1Gi", wantRequired: 64 << 20, wantLimit: 1 << 30},
		{name: "parts of a byte → rounded up", request: "1500m", wantRequired: 2},
		{name: "the most that 64 bits hold → as it is", request: "9223372036854775807", wantRequired: math.MaxInt64},
		{name: "one more → the most, never nothing", request: "9223372036854775808", wantRequired: math.MaxInt64},
		{name: "10E → the most, never nothing", request: "10E", wantRequired: math.MaxInt64},
		{name: "8Ei → the most", request: "8Ei", wantRequired: math.MaxInt64},
		{name: "1e30 → the most", request: "1e30", wantRequired: math.MaxInt64},
		{name: "a limit of 10E → the most, not none", request: "64Mi", limit: "10E", wantRequired: 64 << 20, wantLimit: math.MaxInt64},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := &fakeDriver{err: status.Error(codes.OutOfRange, "x")}
			asked := claim(func(pvc *corev1.PersistentVolumeClaim) {
				pvc.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse(c.request)
				if c.limit != "" {
					pvc.Spec.Resources.Limits = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(c.limit)}
				}
			})
			_, state, err := provisionerOver(t, d).Provision(t.Context(), provision.ProvisionOptions{StorageClass: class(nil), PVName: "pvc-u1", PVC: asked})
			require.EqualError(t, err, "x")
			assert.Equal(t, provision.ProvisioningFinished, state)
			got := d.created[0].CapacityRange
			assert.Equal(t, c.wantRequired, got.RequiredBytes)
			assert.Equal(t, c.wantLimit, got.LimitBytes)
		})
	}
}

func TestProvisionStateAfterAnError(t *testing.T) {
	cases := []struct {
		err  error
		want provision.ProvisioningState
	}{
		{status.Error(codes.InvalidArgument, "x"), provision.ProvisioningFinished},
		{status.Error(codes.ResourceExhausted, "x"), provision.ProvisioningFinished},
		{status.Error(codes.AlreadyExists, "x"), provision.ProvisioningFinished},
		{status.Error(codes.OutOfRange, "x"), provision.ProvisioningFinished},
		{status.Error(codes.DeadlineExceeded, "x"), provision.ProvisioningInBackground},
		{status.Error(codes.Unavailable, "x"), provision.ProvisioningInBackground},
		{status.Error(codes.Aborted, "x"), provision.ProvisioningInBackground},
		{status.Error(codes.Canceled, "x"), provision.ProvisioningInBackground},
		{status.Error(codes.Internal, "x"), provision.ProvisioningInBackground},
		{errors.New("x"), provision.ProvisioningNoChange},
	}
	for _, c := range cases {
		_, state, err := provisionerOver(t, &fakeDriver{err: c.err}).Provision(t.Context(),
			provision.ProvisionOptions{StorageClass: class(nil), PVName: "pvc-u1", PVC: claim(nil)})
		assert.Equal(t, c.want, state)
		require.EqualError(t, err, "x", "the driver's words and no others, or the library adds its own to InvalidArgument")
	}
}

func TestProvisionAVolumeThatIsTooSmallIsNotAccepted(t *testing.T) {
	d := &fakeDriver{answer: &csipb.Volume{VolumeId: "pvc-u1", CapacityBytes: 1 << 20}}
	_, state, err := provisionerOver(t, d).Provision(t.Context(), provision.ProvisionOptions{StorageClass: class(nil), PVName: "pvc-u1", PVC: claim(nil)})
	assert.Error(t, err)
	assert.Equal(t, provision.ProvisioningInBackground, state)
}

func TestDelete(t *testing.T) {
	name, other := "pv-1", "pv-2"
	attachment := func(pv *string) *storagev1.VolumeAttachment {
		return &storagev1.VolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{Name: "a-" + *pv},
			Spec:       storagev1.VolumeAttachmentSpec{NodeName: "n1", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: pv}},
		}
	}
	pv := func(driver string) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: "vol-1"},
			}},
		}
	}
	var ignored *provision.IgnoredError
	cases := []struct {
		name        string
		pv          *corev1.PersistentVolume
		attachments []*storagev1.VolumeAttachment
		deleted     []string
		text        string
		ignored     bool
	}{
		{name: "no attachment → the volume is deleted", pv: pv(driverName), deleted: []string{"vol-1"}},
		{name: "an attachment of another volume → deleted", pv: pv(driverName), attachments: []*storagev1.VolumeAttachment{attachment(&other)}, deleted: []string{"vol-1"}},
		{name: "an attachment → refused", pv: pv(driverName), attachments: []*storagev1.VolumeAttachment{attachment(&name)}, text: "still attached to node n1"},
		{name: "another driver's → ignored", pv: pv("other"), text: "ignored", ignored: true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			d := &fakeDriver{}
			err := provisionerOver(t, d, c.attachments...).Delete(t.Context(), c.pv)
			assert.Equal(t, c.text != "", err != nil)
			if err != nil {
				assert.ErrorContains(t, err, c.text)
			}
			assert.Equal(t, c.ignored, errors.As(err, &ignored), err)
			assert.Equal(t, c.deleted, d.deleted)
		})
	}
}
