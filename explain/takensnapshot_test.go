package explain

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

// taken adds a snapshot of volume v that is ready.
func (w *world) taken(name string, number int64, change ...func(*longhorn.Snapshot)) {
	s := &longhorn.Snapshot{Spec: longhorn.SnapshotSpec{Volume: "v"}, Status: longhorn.SnapshotStatus{Number: number, ReadyToUse: number > 0}}
	s.Name = name
	for _, c := range change {
		c(s)
	}
	w.Snapshots = append(w.Snapshots, s)
}

func deletedBecause(message string) func(*longhorn.Snapshot) {
	return func(s *longhorn.Snapshot) {
		s.DeletionTimestamp, s.Status.ReadyToUse, s.Status.MarkRemoved = &metav1.Time{Time: now}, false, true
		condition(&s.Status.Conditions, longhorn.SnapshotConditionSpaceFreed, longhorn.ConditionFalse, "NeedsSpace", message)
	}
}

func TestReadySnapshotsAreNoFinding(t *testing.T) {
	w := newWorld()
	w.taken("s", 1)
	assert.Empty(t, w.ask(t, "volume v"))
	assert.Empty(t, w.ask(t, "all"))
	found, err := TakenSnapshot(&w.Snapshot, "s")
	require.NoError(t, err)
	assert.Empty(t, found)
}

func TestASnapshotThatIsNotReadyIsExplained(t *testing.T) {
	w := newWorld()
	w.taken("waits", 0, func(s *longhorn.Snapshot) {
		condition(&s.Status.Conditions, longhorn.SnapshotConditionReady, longhorn.ConditionFalse, "Rebuilding", "replica v-r-2 is being rebuilt")
	})
	w.taken("failed", 0, func(s *longhorn.Snapshot) { s.Status.Error = "disk disk-1 of node n1 has no room" })
	found := w.ask(t, "volume v")
	require.Len(t, found, 2)
	for _, f := range found {
		checkText(t, f)
	}
	assert.Equal(t, Finding{
		Object: Object{Kind: KindSnapshot, Name: "failed"}, Severity: Warning, Reason: "SnapshotNotReady",
		What: "snapshot failed of volume v is not ready", Why: []string{"disk disk-1 of node n1 has no room"},
		Next: []Step{{"See its conditions and Events", "kubectl -n longhorn-system describe snapshots.longhorn.io failed"}},
	}, found[0])
	assert.Equal(t, "Rebuilding", found[1].Reason)
	assert.Equal(t, []string{"replica v-r-2 is being rebuilt"}, found[1].Why)
	assert.Equal(t, found, w.ask(t, "all"))
	only, err := TakenSnapshot(&w.Snapshot, "waits")
	require.NoError(t, err)
	assert.Contains(t, only, found[1])
}

func TestDeletedSnapshotsAreOneFinding(t *testing.T) {
	w := newWorld()
	w.taken("b", 2, deletedBecause("node n2: 1 GiB is missing"))
	w.taken("a", 1, deletedBecause(""))
	found := w.ask(t, "volume v")
	require.Len(t, found, 1)
	checkText(t, found[0])
	assert.Equal(t, "the space of 2 deleted snapshots of volume v is not free yet", found[0].What)
	assert.Equal(t, []string{"snapshot b: node n2: 1 GiB is missing"}, found[0].Why)
	assert.Equal(t, Info, found[0].Severity)
	w.detach()
	found = ofSnapshots(&w.Snapshot, "v")
	assert.Contains(t, found[0].Why, "the volume is detached: replicas free the space while the volume is attached")
}

func TestNamesOfSnapshotsAndVolumes(t *testing.T) {
	w := newWorld()
	w.v.Status.KubernetesStatus = longhorn.KubernetesStatus{Namespace: "shop", PVCName: "data", PVName: "v", PVStatus: "Bound"}
	w.taken("nightly-2", 2)
	w.taken("nightly-1", 1)
	for typed, want := range map[string]string{"v": "v", "shop/data": "v"} {
		got, err := VolumeNamed(&w.Snapshot, typed)
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	_, err := VolumeNamed(&w.Snapshot, "shop/dtaa")
	assert.EqualError(t, err, `volume "shop/dtaa" does not exist; did you mean "shop/data"?`)
	_, err = SnapshotOf(&w.Snapshot, "v", "nightly-3")
	assert.EqualError(t, err, `snapshot "nightly-3" does not exist; did you mean "nightly-1"?`)
	_, err = SnapshotOf(&w.Snapshot, "v", "x")
	assert.EqualError(t, err, `snapshot "x" does not exist; there are nightly-1, nightly-2`)
	assert.Equal(t, "snapshot nightly-1 of shop/data", w.TitleOf(Object{Kind: KindSnapshot, Name: "nightly-1"}))
	assert.Equal(t, []Match{{Kind: KindSnapshot, Name: "nightly-1"}}, Find(&w.Snapshot, "", "nightly-1"))
}
