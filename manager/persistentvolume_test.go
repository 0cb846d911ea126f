package manager

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
)

// pvBench returns a cluster whose PersistentVolumes are also in the cache.
func pvBench(t *testing.T, objs ...runtime.Object) *bench {
	t.Helper()
	h := testutil.New(t, objs...)
	b := &bench{Harness: h, hasty: &hastyClock{FakeClock: h.Clock}}
	workloads := datastore.NewWorkloads(h.Kube)
	var cached []*corev1.PersistentVolume
	for _, obj := range objs {
		if pv, ok := obj.(*corev1.PersistentVolume); ok {
			cached = append(cached, pv)
		}
	}
	require.NoError(t, workloads.Replace(cached))
	b.Manager = New(DepsOf(h.Datastore(datastore.Options{}), workloads, b.hasty, h.Log))
	return b
}

// released returns the PersistentVolume of the volume "vol", whose claim was deleted.
func released(changes ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	pv := persistentVolumeOf(detachedVolume("vol"), PersistentVolumeRequest{Name: "pv-1", FSType: "ext4", StorageClass: "static"})
	pv.UID = "uid-pv-1"
	pv.Spec.ClaimRef = &corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: "old", Name: "gone", UID: "uid-gone"}
	pv.Status.Phase = corev1.VolumeReleased
	for _, change := range changes {
		change(pv)
	}
	return pv
}

func TestCreatePersistentVolume(t *testing.T) {
	v := detachedVolume("vol", func(v *longhorn.Volume) {
		v.Spec.AccessMode, v.Spec.DiskSelector, v.Spec.NodeSelector = "rwx", []string{"ssd", "big"}, []string{"fast"}
	})
	b := pvBench(t, v, build.Setting(settings.DefaultStaticStorageClass, "by-hand"))
	_, err := b.CreatePersistentVolume(t.Context(), "vol", PersistentVolumeRequest{})
	require.NoError(t, err)
	b.ExpectWrites("create persistentvolumes/vol")
	pv, err := b.Kube.CoreV1().PersistentVolumes().Get(t.Context(), "vol", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, "by-hand", pv.Spec.StorageClassName)
	assert.Equal(t, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, pv.Spec.AccessModes)
	assert.Equal(t, corev1.PersistentVolumeReclaimRetain, pv.Spec.PersistentVolumeReclaimPolicy)
	assert.Equal(t, corev1.PersistentVolumeFilesystem, *pv.Spec.VolumeMode)
	assert.Equal(t, int64(build.GiB), pv.Spec.Capacity.Storage().Value())
	assert.Equal(t, &corev1.CSIPersistentVolumeSource{
		Driver: "driver.longhorn.io", VolumeHandle: "vol", FSType: "ext4",
		VolumeAttributes: map[string]string{"diskSelector": "ssd,big", "nodeSelector": "fast", "numberOfReplicas": "3", "staleReplicaTimeout": "0"},
	}, pv.Spec.CSI)
}

func TestCreatePersistentVolumeRefuses(t *testing.T) {
	deleted := detachedVolume("vol", func(v *longhorn.Volume) {
		v.DeletionTimestamp, v.Finalizers = &metav1.Time{Time: testutil.Now}, []string{"f"}
	})
	cases := map[string]struct {
		objs  []runtime.Object
		req   PersistentVolumeRequest
		class error
		text  string
	}{
		"a volume that has one":      {[]runtime.Object{detachedVolume("vol"), released()}, PersistentVolumeRequest{}, ErrConflict, `volume "vol" already has the PersistentVolume "pv-1"`},
		"a volume being deleted":     {[]runtime.Object{deleted}, PersistentVolumeRequest{}, ErrConflict, `volume "vol" is being deleted`},
		"a volume that is not there": {nil, PersistentVolumeRequest{}, ErrNotFound, `volume "vol" does not exist`},
		"a name that is taken": {
			[]runtime.Object{detachedVolume("vol"), released(func(pv *corev1.PersistentVolume) { pv.Spec.CSI.VolumeHandle = "other" })},
			PersistentVolumeRequest{Name: "pv-1"},
			ErrConflict, `persistentVolume "pv-1" already exists`,
		},
	}
	for name, c := range cases {
		t.Run(name+" → refused", func(t *testing.T) {
			_, err := pvBench(t, c.objs...).CreatePersistentVolume(t.Context(), "vol", c.req)
			wantProblem(t, err, c.class, c.text)
		})
	}
	_, err := pvBench(t, detachedVolume("vol")).CreatePersistentVolume(t.Context(), "vol", PersistentVolumeRequest{Name: "A"})
	require.Error(t, err)
	assert.Contains(t, err.Error(), `pvName: "A" is not a valid name: `)
}

func TestCreateClaim(t *testing.T) {
	cases := map[string]struct {
		pv     *corev1.PersistentVolume
		writes []string
	}{
		"released → reserved for the new claim": {released(), []string{"update persistentvolumes/pv-1", "create persistentvolumeclaims/data"}},
		"available → reserved, too": {
			released(func(pv *corev1.PersistentVolume) { pv.Spec.ClaimRef, pv.Status.Phase = nil, corev1.VolumeAvailable }),
			[]string{"update persistentvolumes/pv-1", "create persistentvolumeclaims/data"},
		},
		"reserved by a call that ended → the claim alone is made": {
			released(func(pv *corev1.PersistentVolume) {
				pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: "data"}
				pv.Status.Phase = corev1.VolumeAvailable
			}), []string{"create persistentvolumeclaims/data"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := pvBench(t, detachedVolume("vol"), c.pv)
			_, err := b.CreateClaim(t.Context(), "vol", "ns", "data")
			require.NoError(t, err)
			b.ExpectWrites(c.writes...)
			pv, err := b.Kube.CoreV1().PersistentVolumes().Get(t.Context(), "pv-1", metav1.GetOptions{})
			require.NoError(t, err)
			assert.Equal(t, "ns/data", pv.Spec.ClaimRef.Namespace+"/"+pv.Spec.ClaimRef.Name)
			assert.Empty(t, pv.Spec.ClaimRef.UID)
			claim, err := b.Kube.CoreV1().PersistentVolumeClaims("ns").Get(t.Context(), "data", metav1.GetOptions{})
			require.NoError(t, err)
			assert.Equal(t, "pv-1", claim.Spec.VolumeName)
			assert.Equal(t, "static", *claim.Spec.StorageClassName)
			assert.Equal(t, pv.Spec.AccessModes, claim.Spec.AccessModes)
			assert.Equal(t, int64(build.GiB), claim.Spec.Resources.Requests.Storage().Value())
		})
	}
}

func TestCreateClaimRefuses(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vol"}}
	bound := released(func(pv *corev1.PersistentVolume) { pv.Status.Phase = corev1.VolumeBound })
	failed := released(func(pv *corev1.PersistentVolume) { pv.Status.Phase = corev1.VolumeFailed; pv.Spec.ClaimRef = nil })
	cases := map[string]struct {
		objs []runtime.Object
		text string
	}{
		"a bound PersistentVolume": {[]runtime.Object{bound}, `PersistentVolume "pv-1" of volume "vol" already belongs to claim old/gone`},
		"a failed one":             {[]runtime.Object{failed}, `PersistentVolume "pv-1" of volume "vol" is Failed: it must be Available or Released`},
		"none":                     {nil, `volume "vol" has no PersistentVolume: create one with the action pvCreate first`},
		"a claim that is there":    {[]runtime.Object{released(), claim}, `claim ns/vol already exists`},
	}
	for name, c := range cases {
		t.Run(name+" → refused", func(t *testing.T) {
			b := pvBench(t, append(c.objs, detachedVolume("vol"))...)
			_, err := b.CreateClaim(t.Context(), "vol", "ns", "")
			wantProblem(t, err, ErrConflict, c.text)
			b.ExpectWrites()
		})
	}
}
