package manager

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

const nameRule = "must be a DNS label of at most 40 characters: lower-case letters, digits and '-', with a letter or digit at both ends"

func TestCreateVolumeRefusesWhatBreaksARule(t *testing.T) {
	cases := map[string]struct {
		change func(*VolumeRequest)
		field  string
		text   string
	}{
		"no name":               {func(r *VolumeRequest) { r.Name = "" }, "name", "name: " + nameRule},
		"a name in capitals":    {func(r *VolumeRequest) { r.Name = "Vol" }, "name", `name: "Vol" ` + nameRule},
		"a name with a dot":     {func(r *VolumeRequest) { r.Name = "a.b" }, "name", `name: "a.b" ` + nameRule},
		"a name with a slash":   {func(r *VolumeRequest) { r.Name = "../a" }, "name", `name: "../a" ` + nameRule},
		"a name of 41 letters":  {func(r *VolumeRequest) { r.Name = strings.Repeat("a", 41) }, "name", `name: "` + strings.Repeat("a", 41) + `" has 41 characters; the length should be less than or equal to 40`},
		"a size that is a word": {func(r *VolumeRequest) { r.Size = "big" }, "size", `size: "big" must be a number of bytes, or a quantity such as 10Gi or 100G`},
		"a size in MB":          {func(r *VolumeRequest) { r.Size = "20MB" }, "size", `size: "20MB" must be a number of bytes, or a quantity such as 10Gi or 100G`},
		"a size of zero":        {func(r *VolumeRequest) { r.Size = "0" }, "size", `size: "0" must be greater than zero`},
		"a negative size":       {func(r *VolumeRequest) { r.Size = "-1Gi" }, "size", `size: "-1Gi" must be greater than zero`},
		"a size in millibytes":  {func(r *VolumeRequest) { r.Size = "100m" }, "size", `size: "100m" must be a whole number of bytes`},
		"a size beyond 8 EiB":   {func(r *VolumeRequest) { r.Size = "9223372036854775807" }, "size", `size: "9223372036854775807" must be at most 9223372036852678656 bytes`},
		"a size of exabytes":    {func(r *VolumeRequest) { r.Size = "100E" }, "size", `size: "100E" must be at most 9223372036852678656 bytes`},
		"21 replicas":           {func(r *VolumeRequest) { r.NumberOfReplicas = 21 }, "numberOfReplicas", `numberOfReplicas: "21" must be 1 to 20, or 0 for the value of setting default-replica-count`},
		"negative replicas":     {func(r *VolumeRequest) { r.NumberOfReplicas = -1 }, "numberOfReplicas", `numberOfReplicas: "-1" must be 1 to 20, or 0 for the value of setting default-replica-count`},
		"an access mode":        {func(r *VolumeRequest) { r.AccessMode = "many" }, "accessMode", `accessMode: "many" must be rwo or rwop or rwx`},
		"a shared strict-local": {func(r *VolumeRequest) { r.AccessMode, r.DataLocality, r.NumberOfReplicas = "rwx", "strict-local", 1 }, "accessMode", `accessMode: "rwx" must not be rwx with dataLocality strict-local: a shared volume is used on many nodes`},
		"a locality":            {func(r *VolumeRequest) { r.DataLocality = "near" }, "dataLocality", `dataLocality: "near" must be disabled or best-effort or strict-local`},
		"two strict-local":      {func(r *VolumeRequest) { r.DataLocality, r.NumberOfReplicas = "strict-local", 2 }, "numberOfReplicas", `numberOfReplicas: "2" must be 1 with dataLocality strict-local: the one replica is on the node where the volume is attached`},
		"another frontend":      {func(r *VolumeRequest) { r.Frontend = "iscsi" }, "frontend", `frontend: "iscsi" must be blockdev`},
		"another data engine":   {func(r *VolumeRequest) { r.DataEngine = "v2" }, "dataEngine", `dataEngine: "v2" must be v1`},
		"an unknown affinity":   {func(r *VolumeRequest) { r.ReplicaSoftAntiAffinity = "yes" }, "replicaSoftAntiAffinity", `replicaSoftAntiAffinity: "yes" must be ignored or enabled or disabled`},
		"an empty disk tag":     {func(r *VolumeRequest) { r.DiskSelector = []string{"fast", ""} }, "diskSelector[1]", `diskSelector[1]: at least one error encountered while validating tags: "" is not a valid tag: a tag must not be empty`},
		"a blank node tag":      {func(r *VolumeRequest) { r.NodeSelector = []string{" "} }, "nodeSelector[0]", `nodeSelector[0]: at least one error encountered while validating tags: " " is not a valid tag: a tag must not be empty`},
		"a node tag of nobody":  {func(r *VolumeRequest) { r.NodeSelector = []string{"fast", "ssd"} }, "nodeSelector", `nodeSelector: "ssd" does not exist: no node has this tag`},
		"a disk tag of nobody":  {func(r *VolumeRequest) { r.DiskSelector = []string{"fast"} }, "diskSelector", `diskSelector: "fast" does not exist: no disk has this tag`},
	}
	for name, c := range cases {
		t.Run(name+" → refused, nothing is written", func(t *testing.T) {
			b := newBench(t, threeNodes()...)
			req := VolumeRequest{Name: "vol", Size: "1Gi"}
			c.change(&req)
			_, err := b.CreateVolume(t.Context(), req)
			wantInvalid(t, err, c.field, c.text)
			b.ExpectWrites()
		})
	}
}

func TestCreateVolumeReadsSizes(t *testing.T) {
	cases := map[string]struct {
		size string
		want longhorn.Bytes
	}{
		"one byte → rounded up to 2 MiB":         {"1", 2097152},
		"2 MiB → as it is":                       {"2097152", 2097152},
		"2 MiB and a byte → 4 MiB":               {"2097153", 4194304},
		"plain bytes → as they are":              {"10737418240", 10737418240},
		"binary quantity → bytes":                {"10Gi", 10737418240},
		"decimal quantity → rounded up":          {"1G", 1000341504},
		"fraction that makes whole bytes → read": {"1.5Gi", 1610612736},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := parseSize(c.size)
			require.NoError(t, err, c.size)
			assert.Equal(t, c.want, got, c.size)
		})
	}
}

func TestCreateVolumeWithDefaultsRecordsThemAll(t *testing.T) {
	b := newBench(t, append(threeNodes(), build.Setting(settings.DefaultReplicaCount, "2"))...)
	view, err := b.CreateVolume(t.Context(), VolumeRequest{Name: "vol", Size: "1"})
	require.NoError(t, err)
	b.ExpectWrites("create volumes/vol")
	want := longhorn.VolumeSpec{
		Size: 2097152, Frontend: "blockdev", DataLocality: "disabled", AccessMode: "rwo", NumberOfReplicas: 2,
		ReplicaSoftAntiAffinity: "ignored", ReplicaZoneSoftAntiAffinity: "ignored", ReplicaDiskSoftAntiAffinity: "ignored", ReplicaAutoBalance: "ignored", StaleReplicaTimeout: 2880, DiskSelector: []string{}, NodeSelector: []string{},
		DataEngine: "v1", RevisionCounterDisabled: true,
	}
	v := view.Volume
	assert.Equal(t, want, v.Spec)
	assert.Equal(t, "longhorn-system", v.Namespace, "metadata %+v", v.ObjectMeta)
	assert.Equal(t, "vol", v.Labels["longhornvolume"])
	require.Len(t, v.Finalizers, 1)
	assert.Equal(t, "longhorn.io", v.Finalizers[0])
	assert.False(t, view.Ready)
	assert.Equal(t, "volume is creating, not detached", view.NotReadyMessage)
}

func TestCreateVolumeWithoutALocalityGetsTheSettings(t *testing.T) {
	b := newBench(t, append(threeNodes(), build.Setting(settings.DefaultDataLocality, "best-effort"))...)
	view, err := b.CreateVolume(t.Context(), VolumeRequest{Name: "vol", Size: "1"})
	require.NoError(t, err)
	assert.Equal(t, longhorn.DataLocalityBestEffort, view.Volume.Spec.DataLocality)
	view, err = b.CreateVolume(t.Context(), VolumeRequest{Name: "other", Size: "1", DataLocality: "disabled"})
	require.NoError(t, err)
	assert.Equal(t, longhorn.DataLocalityDisabled, view.Volume.Spec.DataLocality)
}

func TestCreateVolumeKeepsWhatWasAsked(t *testing.T) {
	nodes := threeNodes()
	for _, obj := range nodes {
		if n, ok := obj.(*longhorn.Node); ok {
			d := n.Spec.Disks["disk-1"]
			d.Tags = []string{"fast", "ssd"}
			n.Spec.Disks["disk-1"] = d
		}
	}
	b := newBench(t, nodes...)
	never := 0
	view, err := b.CreateVolume(t.Context(), VolumeRequest{
		Name: "vol", Size: "3Mi", NumberOfReplicas: 1, StaleReplicaTimeout: &never, AccessMode: "rwop",
		VolumeOptions: types.VolumeOptions{
			ReplicaSoftAntiAffinity: "enabled", ReplicaZoneSoftAntiAffinity: "disabled", ReplicaDiskSoftAntiAffinity: "disabled", ReplicaAutoBalance: "best-effort",
		},
		DiskSelector: []string{" ssd", "fast", "ssd"}, DataLocality: "best-effort",
	})
	require.NoError(t, err)
	want := longhorn.VolumeSpec{
		Size: 4194304, Frontend: "blockdev", DataLocality: "best-effort", AccessMode: "rwop", NumberOfReplicas: 1,
		ReplicaSoftAntiAffinity: "enabled", ReplicaZoneSoftAntiAffinity: "disabled", ReplicaDiskSoftAntiAffinity: "disabled", ReplicaAutoBalance: "best-effort", StaleReplicaTimeout: 0, DiskSelector: []string{"ssd", "fast"}, NodeSelector: []string{},
		DataEngine: "v1", RevisionCounterDisabled: true,
	}
	assert.Equal(t, want, view.Volume.Spec)
}

func TestCreateVolumeWithoutRoomNamesTheReasonsAndWritesNothing(t *testing.T) {
	all := build.Setting("allow-volume-creation-with-degraded-availability", "false")
	cases := map[string]struct {
		objs []runtime.Object
		req  VolumeRequest
		text string
	}{
		"larger than the disks": {
			threeNodes(),
			VolumeRequest{Name: "vol", MustFit: true, Size: "101Gi"},
			`volume "vol": size 101 GiB with numberOfReplicas 3 does not fit on the disks: replica scheduling failed: 0 of 3 replicas fit: insufficient storage (3 disks)`,
		},
		"more replicas than nodes, all of which must have a place": {
			append(threeNodes(), all),
			VolumeRequest{Name: "vol", MustFit: true, Size: "1Gi", NumberOfReplicas: 4},
			`volume "vol": size 1 GiB with numberOfReplicas 4 does not fit on the disks: replica scheduling failed: 3 of 4 replicas fit: anti-affinity cannot be satisfied (3 disks)`,
		},
		"a tag that no disk has yet": {
			threeNodes(),
			VolumeRequest{Name: "vol", MustFit: true, Size: "1Gi", DiskSelector: []string{"nvme"}},
			`volume "vol" cannot be placed: diskSelector: "nvme" does not exist: no disk has this tag`,
		},
		"a tag that no node has yet": {
			threeNodes(),
			VolumeRequest{Name: "vol", MustFit: true, Size: "1Gi", NodeSelector: []string{"storage"}},
			`volume "vol" cannot be placed: nodeSelector: "storage" does not exist: no node has this tag`,
		},
		"no nodes": {
			nil,
			VolumeRequest{Name: "vol", MustFit: true, Size: "1Gi", NumberOfReplicas: 1},
			`volume "vol": size 1 GiB with numberOfReplicas 1 does not fit on the disks: replica scheduling failed: node not found`,
		},
		"the room is promised to others, and all must have a place": {
			append(threeNodes(), all, build.PlacedReplica("other-r-1", "other", "node-1", "uuid-1", func(r *longhorn.Replica) { r.Spec.VolumeSize = 100 * build.GiB })),
			VolumeRequest{Name: "vol", MustFit: true, Size: "1Gi"},
			`volume "vol": size 1 GiB with numberOfReplicas 3 does not fit on the disks: replica scheduling failed: 2 of 3 replicas fit: anti-affinity cannot be satisfied (2 disks), insufficient storage (1 disk)`,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, c.objs...)
			_, err := b.CreateVolume(t.Context(), c.req)
			wantProblem(t, err, ErrInsufficient, c.text)
			b.ExpectWrites()
		})
	}
	t.Run("one of four replicas has no place, the others are enough → made", func(t *testing.T) {
		b := newBench(t, threeNodes()...)
		_, err := b.CreateVolume(t.Context(), VolumeRequest{Name: "vol", MustFit: true, Size: "1Gi", NumberOfReplicas: 4})
		assert.NoError(t, err)
		b.ExpectWrites("create volumes/vol")
	})
	t.Run("the details name each disk", func(t *testing.T) {
		_, err := newBench(t, threeNodes()...).CreateVolume(t.Context(), VolumeRequest{Name: "vol", MustFit: true, Size: "101Gi"})
		var problem *Problem
		require.ErrorAs(t, err, &problem)
		for _, node := range []string{"node node-1 disk disk-1", "node node-2 disk disk-1", "node node-3 disk disk-1"} {
			assert.Contains(t, problem.Detail, node, "detail does not name")
		}
	})
	t.Run("it may wait for room → made", func(t *testing.T) {
		b := newBench(t, threeNodes()...)
		_, err := b.CreateVolume(t.Context(), VolumeRequest{Name: "vol", Size: "101Gi"})
		assert.NoError(t, err)
		b.ExpectWrites("create volumes/vol")
	})
}

func TestCreateVolumeOfATakenNameIsAConflict(t *testing.T) {
	t.Run("the cache knows it → nothing is sent", func(t *testing.T) {
		b := newBench(t, append(threeNodes(), build.Volume("vol"))...)
		_, err := b.CreateVolume(t.Context(), VolumeRequest{Name: "vol", Size: "1Gi"})
		wantProblem(t, err, ErrConflict, `volume "vol" already exists`)
		b.ExpectWrites()
	})
	t.Run("the cache does not know it yet → the API server refuses", func(t *testing.T) {
		b := newBench(t, threeNodes()...)
		b.Seed(build.Volume("vol"))
		_, err := b.CreateVolume(t.Context(), VolumeRequest{Name: "vol", Size: "1Gi"})
		wantProblem(t, err, ErrConflict, `volume "vol" already exists`)
	})
}

func TestCreateVolumePassesOnWhatTheSchemaRefuses(t *testing.T) {
	b := newBench(t, threeNodes()...)
	b.Fail("create", "volumes", schemaError("spec.size", "size must be greater than zero"))
	_, err := b.CreateVolume(t.Context(), VolumeRequest{Name: "vol", Size: "1Gi"})
	wantInvalid(t, err, "spec.size", "spec.size: size must be greater than zero")

	b.Fail("create", "volumes", errors.New("etcd has a headache"))
	_, err = b.CreateVolume(t.Context(), VolumeRequest{Name: "vol", Size: "1Gi"})
	var invalid *Invalid
	var problem *Problem
	require.Error(t, err)
	require.NotErrorAs(t, err, &invalid)
	assert.NotErrorAs(t, err, &problem)
}

// schemaError returns the error with which an API server refuses an object that breaks a rule of the CRD.
func schemaError(field, message string) error {
	return &statusError{metav1.Status{
		Status: metav1.StatusFailure, Code: 422, Reason: metav1.StatusReasonInvalid,
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Field: field, Message: message}}},
	}}
}

type statusError struct{ status metav1.Status }

func (e *statusError) Error() string         { return e.status.Message }
func (e *statusError) Status() metav1.Status { return e.status }
