package storageclass

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A policy may change without any event here, so the controller retries. The text of the ConfigMap cannot change
// without an event.
func TestAClassThatAPolicyForbidsIsToldOnceAndTriedAgain(t *testing.T) {
	f := newFixture(t, two)
	refused := apierrors.NewForbidden(schema.GroupResource{Group: "storage.k8s.io", Resource: "storageclasses"}, "longhorn", errors.New("no such parameters here"))
	f.Fail("create", "storageclasses", refused, refused)
	require.ErrorIs(t, f.syncs(t), refused)
	require.ErrorIs(t, f.syncs(t), refused)
	f.ExpectEvents(`Warning StorageClassInvalid longhorn-storageclass: key storageclass.yaml: the API server refuses the StorageClass: ` +
		`create storageclasses.storage.k8s.io longhorn: storageclasses.storage.k8s.io "longhorn" is forbidden: no such parameters here`)
	require.NoError(t, f.syncs(t))
}
