package storageclass

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	two   = small + "parameters: {numberOfReplicas: \"2\"}\n"
	three = small + "parameters: {numberOfReplicas: \"3\"}\n"
)

// fixture is the controller of a cluster with a text in the ConfigMap.
type fixture struct {
	*testutil.Harness
	*Controller
	store *datastore.Datastore
}

func newFixture(t *testing.T, text string, objs ...runtime.Object) *fixture {
	t.Helper()
	h := testutil.New(t, append(objs, build.ConfigMap("longhorn-storageclass", "storageclass.yaml", text))...)
	f := &fixture{Harness: h, store: h.Datastore(datastore.Options{})}
	c, err := New(Deps{Env: h.Env(), ConfigMap: f.store.StorageClassConfig, Classes: f.store.StorageClasses})
	require.NoError(t, err)
	f.Controller = c
	h.EndWithTest(c.Run)
	return f
}

// syncs syncs once, and then updates the cache with the writes.
func (f *fixture) syncs(t *testing.T) error {
	t.Helper()
	_, err := f.sync(t.Context(), "longhorn-storageclass")
	f.CatchUp()
	return err
}

// live is the StorageClass on the API server.
func (f *fixture) live(t *testing.T) *storagev1.StorageClass {
	t.Helper()
	sc, err := f.store.StorageClasses.Live(t.Context(), "longhorn")
	require.NoError(t, err)
	return sc
}

func TestTheStorageClassIsMadeOnceAndAgainWhenItIsDeleted(t *testing.T) {
	f := newFixture(t, two)
	require.NoError(t, f.syncs(t))
	require.NoError(t, f.syncs(t))
	f.ExpectWrites("create storageclasses/longhorn")
	f.ExpectEvents("Normal StorageClassUpdated longhorn-storageclass: Created StorageClass longhorn from the ConfigMap")
	assert.Equal(t, "2", f.live(t).Parameters["numberOfReplicas"])

	require.NoError(t, f.store.StorageClasses.Delete(t.Context(), "longhorn", datastore.Preconditions{}))
	f.CatchUp()
	f.Writes()
	require.NoError(t, f.syncs(t))
	f.ExpectWrites("create storageclasses/longhorn")
}

func TestAnotherTextMakesItAnew(t *testing.T) {
	f := newFixture(t, two)
	require.NoError(t, f.syncs(t))
	before := f.live(t)
	f.Overwrite(build.ConfigMap("longhorn-storageclass", "storageclass.yaml", three))
	f.CatchUp()
	f.Writes()
	require.NoError(t, f.syncs(t))
	require.NoError(t, f.syncs(t))
	// The first write is a dry run, which changes nothing.
	f.ExpectWrites("create storageclasses/longhorn", "delete storageclasses/longhorn", "create storageclasses/longhorn")
	assert.Equal(t, "3", f.live(t).Parameters["numberOfReplicas"])
	assert.NotEqual(t, before.UID, f.live(t).UID)
}

func TestWhatTheAPIServerRefusesDoesNotCostTheOldOne(t *testing.T) {
	f := newFixture(t, three, class(t, two))
	f.Fail("create", "storageclasses", apierrors.NewInvalid(schema.GroupKind{Kind: "StorageClass"}, "longhorn", nil))
	require.NoError(t, f.syncs(t))
	f.ExpectWrites("create storageclasses/longhorn")
	assert.Equal(t, "2", f.live(t).Parameters["numberOfReplicas"])
	f.ExpectEvents(`Warning StorageClassInvalid longhorn-storageclass: key storageclass.yaml: the API server refuses the StorageClass: ` +
		`create storageclasses.storage.k8s.io longhorn as a dry run: StorageClass "longhorn" is invalid`)
}

func TestAStorageClassThatWasPutInItsPlaceMeanwhileIsNotDeleted(t *testing.T) {
	f := newFixture(t, three, class(t, two))
	theirs := class(t, two, func(sc *storagev1.StorageClass) { sc.UID, sc.Labels = "uid-theirs", nil })
	f.Overwrite(theirs) // the cache is late
	_, err := f.sync(t.Context(), "longhorn-storageclass")
	require.ErrorIs(t, err, queue.ErrStale)
	f.ExpectWrites()
	f.CatchUp()
	require.NoError(t, f.syncs(t))
	require.NoError(t, f.syncs(t))
	f.ExpectWrites()
	f.ExpectEvents("Warning StorageClassInvalid longhorn-storageclass: StorageClass longhorn was not created by this installation " +
		"(it has no label longhorn.io/installation=lep) and is left unchanged; delete it so that the manager creates it from the ConfigMap")
}

func TestABadTextIsToldOnceAndChangesNothing(t *testing.T) {
	f := newFixture(t, "kind: Pod\n", class(t, two))
	require.NoError(t, f.syncs(t))
	require.NoError(t, f.syncs(t))
	f.ExpectWrites()
	f.ExpectEvents(`Warning StorageClassInvalid longhorn-storageclass: key storageclass.yaml: kind: value "Pod" must be StorageClass`)

	f.Overwrite(build.ConfigMap("longhorn-storageclass", "storageclass.yaml", two))
	f.CatchUp()
	require.NoError(t, f.syncs(t))
	f.Overwrite(build.ConfigMap("longhorn-storageclass", "storageclass.yaml", "kind: Pod\n"))
	f.CatchUp()
	f.Recorder.Take()
	require.NoError(t, f.syncs(t))
	f.ExpectEvents(`Warning StorageClassInvalid longhorn-storageclass: key storageclass.yaml: kind: value "Pod" must be StorageClass`)
}

func TestWithoutTheConfigMapNothingIsDone(t *testing.T) {
	f := newFixture(t, two, class(t, three))
	require.NoError(t, f.store.StorageClassConfig.Delete(t.Context(), "longhorn-storageclass", datastore.Preconditions{}))
	f.CatchUp()
	f.Writes()
	require.NoError(t, f.syncs(t))
	f.ExpectWrites()
}

func TestAWriteThatFailsIsTriedAgain(t *testing.T) {
	f := newFixture(t, two)
	f.Fail("create", "storageclasses", errors.New("timeout"), errors.New("timeout"))
	require.Error(t, f.syncs(t))
	require.Error(t, f.syncs(t))
	require.NoError(t, f.syncs(t))
	assert.Equal(t, "2", f.live(t).Parameters["numberOfReplicas"])
}
