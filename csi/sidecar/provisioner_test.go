package sidecar

import (
	"context"
	"errors"
	"io"
	"math"
	"reflect"
	"strings"
	"testing"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/sirupsen/logrus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"
	provision "sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

const driverName = "driver.longhorn.io"

// fakeDriver is the driver's controller service as a client sees it.
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
		if err := indexer.Add(a); err != nil {
			t.Fatal(err)
		}
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
	if err != nil || state != provision.ProvisioningFinished {
		t.Fatalf("%v, %v", state, err)
	}
	req := d.created[0]
	wantParams := map[string]string{
		"numberOfReplicas": "3", "fromBackup": "",
		"csi.storage.k8s.io/pvc/name": "data", "csi.storage.k8s.io/pvc/namespace": "default", "csi.storage.k8s.io/pv/name": "pvc-u1",
	}
	c := req.VolumeCapabilities[0]
	switch {
	case req.Name != "pvc-u1", req.CapacityRange.RequiredBytes != 64<<20, req.CapacityRange.LimitBytes != 0:
		t.Errorf("request %v", req)
	case !reflect.DeepEqual(req.Parameters, wantParams):
		t.Errorf("parameters %v, want %v", req.Parameters, wantParams)
	case c.GetAccessMode().GetMode() != csipb.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER:
		t.Errorf("access mode %s", c.GetAccessMode().GetMode())
	case c.GetMount().GetFsType() != "xfs" || !reflect.DeepEqual(c.GetMount().GetMountFlags(), []string{"noatime"}):
		t.Errorf("mount %v", c.GetMount())
	}
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
	if !reflect.DeepEqual(pv, want) {
		t.Errorf("got %+v\nwant %+v", pv, want)
	}
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
			if err != nil {
				t.Fatal(err)
			}
			got := d.created[0].VolumeCapabilities[0]
			if got.AccessMode.Mode != c.want {
				t.Errorf("mode %s, want %s", got.AccessMode.Mode, c.want)
			}
			isBlock := c.name == "block"
			if (got.GetBlock() != nil) != isBlock || (got.GetMount() != nil) == isBlock {
				t.Errorf("capability %v", got)
			}
			if fsType := pv.Spec.CSI.FSType; isBlock && fsType != "" || !isBlock && fsType != "ext4" {
				t.Errorf("file system type %q", fsType)
			}
			if (*pv.Spec.VolumeMode == corev1.PersistentVolumeBlock) != isBlock {
				t.Errorf("volume mode %s", *pv.Spec.VolumeMode)
			}
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
		{name: "a data source", claim: func(c *corev1.PersistentVolumeClaim) { c.Spec.DataSource = &corev1.TypedLocalObjectReference{} }, text: "data source"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			d := &fakeDriver{}
			_, state, err := provisionerOver(t, d).Provision(t.Context(), provision.ProvisionOptions{StorageClass: class(c.params), PVName: "pvc-u1", PVC: claim(c.claim)})
			if err == nil || !strings.Contains(err.Error(), c.text) || state != provision.ProvisioningFinished {
				t.Errorf("got %v, %v, want an error with %q", state, err, c.text)
			}
			if len(d.created) != 0 {
				t.Errorf("the driver was asked: %v", d.created)
			}
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
			if status.Code(err) != codes.OutOfRange || state != provision.ProvisioningFinished {
				t.Errorf("got %s, %v, want the driver's refusal", state, err)
			}
			if got := d.created[0].CapacityRange; got.RequiredBytes != c.wantRequired || got.LimitBytes != c.wantLimit {
				t.Errorf("asked for %d, limit %d; want %d, limit %d", got.RequiredBytes, got.LimitBytes, c.wantRequired, c.wantLimit)
			}
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
		if state != c.want || !errors.Is(err, c.err) {
			t.Errorf("%v: state %s, %v, want %s", c.err, state, err, c.want)
		}
	}
}

func TestProvisionAVolumeThatIsTooSmallIsNotAccepted(t *testing.T) {
	d := &fakeDriver{answer: &csipb.Volume{VolumeId: "pvc-u1", CapacityBytes: 1 << 20}}
	_, state, err := provisionerOver(t, d).Provision(t.Context(), provision.ProvisionOptions{StorageClass: class(nil), PVName: "pvc-u1", PVC: claim(nil)})
	if err == nil || state != provision.ProvisioningInBackground {
		t.Errorf("got %v, %v", state, err)
	}
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
			if (err != nil) != (c.text != "") || err != nil && !strings.Contains(err.Error(), c.text) {
				t.Errorf("error %v, want one with %q", err, c.text)
			}
			if errors.As(err, &ignored) != c.ignored {
				t.Errorf("ignored: %v", err)
			}
			if !reflect.DeepEqual(d.deleted, c.deleted) {
				t.Errorf("deleted %v, want %v", d.deleted, c.deleted)
			}
		})
	}
}
