package manager

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// claimed is a cluster with the volume "vol" of 1 GiB, whose PersistentVolume is bound to the claim default/data.
type claimed struct {
	volume  func(*longhorn.Volume)
	request string // of the claim; empty: there is no claim
	class   func(*storagev1.StorageClass)
	fsType  string
	block   bool
	more    []runtime.Object
}

func (c claimed) bench(t *testing.T) *bench {
	t.Helper()
	v := build.Volume("vol", func(v *longhorn.Volume) {
		v.Status.State, v.Status.Size = longhorn.VolumeStateDetached, build.GiB
	})
	if c.volume != nil {
		c.volume(v)
	}
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "longhorn"}, AllowVolumeExpansion: new(true)}
	if c.class != nil {
		c.class(class)
	}
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv-1"},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: types.DriverName, VolumeHandle: "vol", FSType: c.fsType}},
			ClaimRef:               &corev1.ObjectReference{Namespace: "default", Name: "data", UID: "uid-data"},
		},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
	}
	if c.block {
		pv.Spec.VolumeMode = new(corev1.PersistentVolumeBlock)
	}
	objects := append([]runtime.Object{v, class}, c.more...)
	if c.request != "" {
		objects = append(objects, &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "data", UID: "uid-data"},
			Spec: corev1.PersistentVolumeClaimSpec{
				VolumeName: "pv-1", StorageClassName: new("longhorn"),
				Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(c.request)}},
			},
		})
	}
	h := testutil.New(t, objects...)
	workloads := datastore.NewWorkloads(h.Kube)
	require.NoError(t, workloads.Replace([]*corev1.PersistentVolume{pv}))
	clock := &hastyClock{FakeClock: h.Clock}
	return &bench{Harness: h, Manager: New(DepsOf(h.Datastore(datastore.Options{}), workloads, clock, h.Log)), hasty: clock}
}

func (b *bench) sizes(t *testing.T) (volume int64, request string) {
	t.Helper()
	v, err := b.Longhorn.LonghornV1beta2().Volumes(types.Namespace).Get(t.Context(), "vol", metav1.GetOptions{})
	require.NoError(t, err)
	claim, err := b.Kube.CoreV1().PersistentVolumeClaims("default").Get(t.Context(), "data", metav1.GetOptions{})
	if err == nil {
		storage := claim.Spec.Resources.Requests[corev1.ResourceStorage]
		request = storage.String()
	}
	return int64(v.Spec.Size), request
}

func TestExpandVolume(t *testing.T) {
	const gib = int64(1 << 30)
	faulted := func(v *longhorn.Volume) { v.Status.Robustness = longhorn.VolumeRobustnessFaulted }
	cases := map[string]struct {
		given   claimed
		size    string
		volume  int64
		request string
		class   error
		text    string // of the refusal
	}{
		"no claim → the volume is to grow":                             {claimed{}, "2Gi", 2 * gib, "", nil, ""},
		"rounded up to 2 MiB":                                          {claimed{}, "1073741825", gib + 2<<20, "", nil, ""},
		"the size that it has → nothing":                               {claimed{request: "1Gi"}, "1Gi", gib, "1Gi", nil, ""},
		"the claim requests less → the claim is to grow, and it alone": {claimed{request: "1Gi"}, "2Gi", gib, "2Gi", nil, ""},
		"the claim requests as much → the volume is to grow":           {claimed{request: "2Gi"}, "2Gi", 2 * gib, "2Gi", nil, ""},
		"the claim requests what is rounded up to the size → the volume is to grow, and the claim stays as it was written": {
			claimed{request: "2G"}, "2000683008", 2000683008, "2G", nil, "",
		},
		"the claim requests 2 MiB less than the size → the claim is to grow": {
			claimed{request: "2145386496"}, "2Gi", gib, "2Gi", nil, "",
		},
		"less than it has → refused": {
			claimed{request: "1Gi"}, "512Mi", gib, "1Gi", nil, `size: "512Mi" must not be less than the volume's size of 1073741824 bytes: a volume cannot shrink`,
		},
		"no size → refused":    {claimed{}, "", gib, "", nil, "size: is required: a number of bytes, or a quantity such as 10Gi or 100G"},
		"not a size → refused": {claimed{}, "much", gib, "", nil, `size: "much" must be a number of bytes, or a quantity such as 10Gi or 100G`},
		"faulted → refused":    {claimed{volume: faulted}, "2Gi", gib, "", ErrConflict, `volume "vol" cannot be expanded: volume is faulted`},
		"more than ext4 can have → refused": {
			claimed{request: "1Gi", fsType: "ext4"}, "17Ti", gib, "1Gi", nil, `size: "18691697672192" must be at most 17592186044416 bytes, the largest size of an ext4 file system`,
		},
		"as much as xfs can have → the claim is to grow":            {claimed{request: "1Gi", fsType: "xfs"}, "17Ti", gib, "17Ti", nil, ""},
		"as a device, without a file system → the claim is to grow": {claimed{request: "1Gi", fsType: "ext4", block: true}, "17Ti", gib, "17Ti", nil, ""},
		"a class that does not allow it → refused": {
			claimed{request: "1Gi", class: func(c *storagev1.StorageClass) { c.AllowVolumeExpansion = nil }},
			"2Gi", gib, "1Gi", ErrConflict,
			`the volume cannot be expanded: its claim default/data has the StorageClass "longhorn", which does not allow expansion: its allowVolumeExpansion is not true`,
		},
		"a class that is gone → refused": {
			claimed{request: "1Gi", class: func(c *storagev1.StorageClass) { c.Name = "other" }},
			"2Gi", gib, "1Gi", ErrConflict,
			`the volume cannot be expanded: its claim default/data has the StorageClass "longhorn", which does not exist`,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := c.given.bench(t)
			_, err := b.ExpandVolume(t.Context(), "vol", ExpandRequest{Size: c.size})
			if c.text != "" {
				require.EqualError(t, err, c.text)
				var invalid *Invalid
				if c.class != nil {
					require.ErrorIs(t, err, c.class)
				} else {
					require.ErrorAs(t, err, &invalid)
				}
			} else {
				require.NoError(t, err)
			}
			volume, request := b.sizes(t)
			assert.Equal(t, c.volume, volume)
			assert.Equal(t, c.request, request)
		})
	}
}

// MustFit refuses a size that does not fit on the disks of the replicas, of 100 GiB each. ExpandVolume writes nothing
// in that case.
func TestExpandVolumeMustFit(t *testing.T) {
	const gib = int64(1 << 30)
	down := func(n *longhorn.Node) {
		n.Status.Conditions[0] = longhorn.Condition{Type: types.ConditionReady, Status: longhorn.ConditionFalse, Reason: types.ReasonKubernetesNodeNotReady}
	}
	full := build.WithDiskStatus("disk-1", "disk-b", func(d *longhorn.DiskStatus) { d.StorageAvailable = 30 * build.GiB })
	const lacks = `volume "vol" cannot be expanded to 10737418240 bytes: 9 GiB more do not fit on disk disk-b (/var/lib/longhorn) of node b: `
	cases := map[string]struct {
		given   claimed
		b       []func(*longhorn.Node) // changes of node b, where a replica is
		mustFit bool
		volume  int64
		request string
		text    string // the start of the refusal
	}{
		"there is room → the volume is to grow":                             {claimed{request: "10Gi"}, nil, true, 10 * gib, "10Gi", ""},
		"no room on one disk → refused":                                     {claimed{request: "10Gi"}, []func(*longhorn.Node){full}, true, gib, "10Gi", lacks},
		"no room, the claim requests less → refused, and so does the claim": {claimed{request: "1Gi"}, []func(*longhorn.Node){full}, true, gib, "1Gi", lacks},
		"no room, it may wait for it → the volume is to grow":               {claimed{request: "10Gi"}, []func(*longhorn.Node){full}, false, 10 * gib, "10Gi", ""},
		"no room on a node that is down → it is not asked":                  {claimed{request: "10Gi"}, []func(*longhorn.Node){full, down}, true, 10 * gib, "10Gi", ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			c.given.more = []runtime.Object{
				build.ReadyNode("a", "disk-a"), build.ReadyNode("b", "disk-b", c.b...),
				build.PlacedReplica("vol-r-1", "vol", "a", "disk-a"), build.PlacedReplica("vol-r-2", "vol", "b", "disk-b"),
			}
			b := c.given.bench(t)
			_, err := b.ExpandVolume(t.Context(), "vol", ExpandRequest{Size: "10Gi", MustFit: c.mustFit})
			if c.text != "" {
				require.ErrorIs(t, err, ErrInsufficient)
				require.ErrorContains(t, err, c.text)
			} else {
				require.NoError(t, err)
			}
			volume, request := b.sizes(t)
			assert.Equal(t, c.volume, volume)
			assert.Equal(t, c.request, request)
		})
	}
}

func TestCancelExpansion(t *testing.T) {
	cases := map[string]struct {
		spec, recorded int64
		required       bool
		want           int64
		text           string
	}{
		"not begun → taken back": {2 << 30, 1 << 30, true, 1 << 30, ""},
		"begun → refused":        {2 << 30, 2 << 30, true, 2 << 30, `the expansion of volume "vol" to 2147483648 bytes cannot be canceled: it has started, and replicas may already have that size`},
		"none → refused":         {1 << 30, 1 << 30, false, 1 << 30, `volume "vol" has no expansion to cancel`},
		"not recorded → refused": {1 << 30, 0, false, 1 << 30, `volume "vol" has no expansion to cancel`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := claimed{volume: func(v *longhorn.Volume) {
				v.Spec.Size, v.Status.Size, v.Status.ExpansionRequired = longhorn.Bytes(c.spec), longhorn.Bytes(c.recorded), c.required
			}}.bench(t)
			view, err := b.CancelExpansion(t.Context(), "vol")
			volume, _ := b.sizes(t)
			assert.Equal(t, c.want, volume)
			if c.text != "" {
				require.ErrorIs(t, err, ErrConflict)
				require.EqualError(t, err, c.text)
				return
			}
			require.NoError(t, err)
			assert.False(t, view.ExpansionRequired)
		})
	}
	b := claimed{}.bench(t)
	_, err := b.CancelExpansion(t.Context(), "other")
	require.ErrorIs(t, err, ErrNotFound)
}
