package sidecar

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-lib-utils/accessmodes"
	"github.com/sirupsen/logrus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"
	provision "sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

// eventIgnoredParameters is the reason of the Event about parameters without effect.
const eventIgnoredParameters = "IgnoredParameters"

// identityAttribute in a PersistentVolume names the provisioner that created it.
const identityAttribute = "storage.kubernetes.io/csiProvisionerIdentity"

// Provisioner creates volumes for claims and removes those of released PersistentVolumes, by calls to the driver. Every
// call may be repeated.
type Provisioner struct {
	driver               csipb.ControllerClient
	driverName, identity string
	// multiWriter: the driver expects ReadWriteOnce as SINGLE_NODE_MULTI_WRITER.
	multiWriter bool
	attachments storagelisters.VolumeAttachmentLister
	// check and withoutEffect check the parameters of a StorageClass; see Options.
	check         func(map[string]string) error
	withoutEffect func(map[string]string) []string
	recorder      record.EventRecorder
	failures      repeatedTexts // by claim
	log           *logrus.Entry
}

var _ provision.BlockProvisioner = (*Provisioner)(nil)

// SupportsBlock implements provision.BlockProvisioner.
func (p *Provisioner) SupportsBlock(context.Context) bool { return true }

// Provision creates the volume for a claim and describes its PersistentVolume.
func (p *Provisioner) Provision(ctx context.Context, o provision.ProvisionOptions) (*corev1.PersistentVolume, provision.ProvisioningState, error) {
	params, req, err := p.prepare(o)
	if err != nil {
		// An earlier attempt may have reached the driver, so a volume may be under way.
		return nil, provision.ProvisioningNoChange, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	response, err := p.driver.CreateVolume(ctx, req)
	if err != nil {
		// The error is without its code, because the library adds text of its own to InvalidArgument. The code has
		// already been used.
		return nil, stateOf(o, err), errors.New(p.failures.text(string(o.PVC.UID), messageOf(err)))
	}
	p.failures.forget(string(o.PVC.UID))
	volume := response.GetVolume()
	if got, want := volume.GetCapacityBytes(), req.CapacityRange.RequiredBytes; got != 0 && got < want {
		return nil, provision.ProvisioningInBackground, fmt.Errorf(
			"volume %s has %d bytes, less than the requested %d", volume.GetVolumeId(), got, want)
	}
	p.reportIgnored(o, params)
	p.log.WithFields(logrus.Fields{"volume": volume.GetVolumeId(), "claim": o.PVC.Namespace + "/" + o.PVC.Name}).Info("Provisioned volume")
	return p.persistentVolume(o, params, volume), provision.ProvisioningFinished, nil
}

// prepare checks claim and class before the call to the driver.
func (p *Provisioner) prepare(o provision.ProvisionOptions) (classParameters, *csipb.CreateVolumeRequest, error) {
	params, err := readParameters(o.StorageClass.Parameters)
	if err == nil && p.check != nil {
		err = p.check(params.checked())
	}
	if err != nil {
		return params, nil, fmt.Errorf("storage class %s: %w; a class cannot be changed: delete it, and create it again without this error", o.StorageClass.Name, err)
	}
	req, err := p.request(o, params)
	return params, req, err
}

// reportIgnored reports to the claim's owner which parameters of the class had no effect. It runs when the volume
// exists, which happens once for a claim, so retries of a claim do not repeat the report.
func (p *Provisioner) reportIgnored(o provision.ProvisionOptions, params classParameters) {
	if p.withoutEffect == nil {
		return
	}
	if ignored := p.withoutEffect(params.driver); len(ignored) > 0 {
		p.recorder.Eventf(o.PVC, corev1.EventTypeWarning, eventIgnoredParameters,
			"storage class %s: these parameters have no effect, because the driver does not support or does not know them: %s",
			o.StorageClass.Name, strings.Join(ignored, ", "))
	}
}

func (p *Provisioner) request(o provision.ProvisionOptions, params classParameters) (*csipb.CreateVolumeRequest, error) {
	claim := o.PVC
	switch {
	case claim.Spec.Selector != nil:
		return nil, fmt.Errorf("claim %s/%s: a selector is not supported for a new volume; create the claim again without the selector", claim.Namespace, claim.Name)
	case ptr.Deref(claim.Spec.VolumeAttributesClassName, "") != "":
		return nil, fmt.Errorf("claim %s/%s: volumeAttributesClassName %q: volume attributes classes are not supported; create the claim again without this field",
			claim.Namespace, claim.Name, *claim.Spec.VolumeAttributesClassName)
	case claim.Spec.DataSource != nil || claim.Spec.DataSourceRef != nil:
		return nil, fmt.Errorf("claim %s/%s: creating a volume from a data source is not supported", claim.Namespace, claim.Name)
	}
	mode, err := accessmodes.ToCSIAccessMode(claim.Spec.AccessModes, p.multiWriter)
	if err != nil {
		return nil, fmt.Errorf("claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	capacity := &csipb.CapacityRange{RequiredBytes: bytesOf(claim.Spec.Resources.Requests[corev1.ResourceStorage])}
	if limit, ok := claim.Spec.Resources.Limits[corev1.ResourceStorage]; ok {
		capacity.LimitBytes = bytesOf(limit)
	}
	c := &csipb.VolumeCapability{AccessMode: &csipb.VolumeCapability_AccessMode{Mode: mode}}
	if isBlock(claim) {
		c.AccessType = &csipb.VolumeCapability_Block{Block: &csipb.VolumeCapability_BlockVolume{}}
	} else {
		c.AccessType = &csipb.VolumeCapability_Mount{Mount: &csipb.VolumeCapability_MountVolume{
			FsType: params.fsType, MountFlags: o.StorageClass.MountOptions,
		}}
	}
	var node *csipb.TopologyRequirement
	if o.SelectedNodeName != "" {
		node = &csipb.TopologyRequirement{Preferred: []*csipb.Topology{{Segments: map[string]string{corev1.LabelHostname: o.SelectedNodeName}}}}
	}
	return &csipb.CreateVolumeRequest{
		Name:                      o.PVName,
		CapacityRange:             capacity,
		VolumeCapabilities:        []*csipb.VolumeCapability{c},
		Parameters:                params.describe(claim, o.PVName),
		AccessibilityRequirements: node,
	}, nil
}

// bytesOf is a quantity in bytes. A quantity that exceeds an int64, such as 10E, becomes the largest int64. No volume
// can have that size, and the driver says so. (Value would return 0, which requests nothing.)
func bytesOf(quantity resource.Quantity) int64 {
	if quantity.CmpInt64(math.MaxInt64) > 0 {
		return math.MaxInt64
	}
	return quantity.Value()
}

func isBlock(claim *corev1.PersistentVolumeClaim) bool {
	return claim.Spec.VolumeMode != nil && *claim.Spec.VolumeMode == corev1.PersistentVolumeBlock
}

// persistentVolume describes the volume to Kubernetes. Except for the name of the process that created it, the
// description depends only on claim, class and the driver's answer.
func (p *Provisioner) persistentVolume(o provision.ProvisionOptions, params classParameters, volume *csipb.Volume) *corev1.PersistentVolume {
	attributes := map[string]string{identityAttribute: p.identity + "-" + p.driverName}
	for key, value := range volume.GetVolumeContext() {
		attributes[key] = value
	}
	capacity := o.PVC.Spec.Resources.Requests[corev1.ResourceStorage]
	if bytes := volume.GetCapacityBytes(); bytes != 0 {
		capacity = *resource.NewQuantity(bytes, resource.BinarySI)
	}
	mode := corev1.PersistentVolumeFilesystem
	source := &corev1.CSIPersistentVolumeSource{
		Driver: p.driverName, VolumeHandle: volume.GetVolumeId(), VolumeAttributes: attributes,
	}
	if isBlock(o.PVC) {
		mode = corev1.PersistentVolumeBlock
	} else {
		source.FSType = params.fsType
	}
	reclaim := corev1.PersistentVolumeReclaimDelete
	if o.StorageClass.ReclaimPolicy != nil {
		reclaim = *o.StorageClass.ReclaimPolicy
	}
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: o.PVName, Annotations: annotationsOf(o.StorageClass)},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes:                   o.PVC.Spec.AccessModes,
			MountOptions:                  o.StorageClass.MountOptions,
			PersistentVolumeReclaimPolicy: reclaim,
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: capacity},
			VolumeMode:                    &mode,
			PersistentVolumeSource:        corev1.PersistentVolumeSource{CSI: source},
		},
	}
}

// annotationsOf are the annotations of a class's PersistentVolumes.
func annotationsOf(class *storagev1.StorageClass) map[string]string {
	if bindsLate(class) && isStrictLocal(class) {
		return map[string]string{AnnotationAffinity: "true"}
	}
	return nil
}

func isStrictLocal(class *storagev1.StorageClass) bool {
	return strings.TrimSpace(class.Parameters[paramDataLocality]) == localityStrict
}

// bindsLate reports whether a claim of a class gets its volume when its pod has a node.
func bindsLate(class *storagev1.StorageClass) bool {
	return ptr.Deref(class.VolumeBindingMode, "") == storagev1.VolumeBindingWaitForFirstConsumer
}

// stateOf is stateAfter with one exception: if the chosen node has no space, and the node matters, Kubernetes chooses
// another node.
func stateOf(o provision.ProvisionOptions, err error) provision.ProvisioningState {
	if status.Code(err) == codes.ResourceExhausted && o.SelectedNodeName != "" && isStrictLocal(o.StorageClass) {
		return provision.ProvisioningReschedule
	}
	return stateAfter(err)
}

// stateAfter determines from the driver's answer whether a volume may have been created, or may still be. If so, the
// loop asks again even when the claim is gone, to learn of the volume and remove it.
func stateAfter(err error) provision.ProvisioningState {
	st, ok := status.FromError(err)
	if !ok {
		return provision.ProvisioningNoChange // there was no call
	}
	switch st.Code() {
	case codes.Canceled, // this process is stopping; the driver may have continued
		codes.DeadlineExceeded,
		codes.Unavailable, // the manager or the driver is away; an earlier call may have succeeded
		codes.Aborted,     // another call for the same volume is under way
		codes.Internal, codes.Unknown:
		return provision.ProvisioningInBackground
	}
	// InvalidArgument, ResourceExhausted, AlreadyExists, OutOfRange, …: nothing was created.
	return provision.ProvisioningFinished
}

// Delete removes the volume of a released PersistentVolume, unless a VolumeAttachment for it exists: a node may still
// have mounted it. The cache is good enough for this check. A released PersistentVolume gets no new attachment, so the
// cache can only be late in showing that one is gone, and then the deletion is tried again.
func (p *Provisioner) Delete(ctx context.Context, pv *corev1.PersistentVolume) error {
	if pv.Spec.CSI == nil || pv.Spec.CSI.Driver != p.driverName {
		return &provision.IgnoredError{Reason: "the persistent volume is not of driver " + p.driverName}
	}
	attachments, err := p.attachments.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("listing VolumeAttachments: %w", err)
	}
	for _, a := range attachments {
		if name := a.Spec.Source.PersistentVolumeName; name != nil && *name == pv.Name {
			return fmt.Errorf("persistent volume %s is still attached to node %s", pv.Name, a.Spec.NodeName)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err := p.driver.DeleteVolume(ctx, &csipb.DeleteVolumeRequest{VolumeId: pv.Spec.CSI.VolumeHandle}); err != nil {
		return err
	}
	p.log.WithField("volume", pv.Spec.CSI.VolumeHandle).Info("Deleted volume")
	return nil
}
