package datastore

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/lru"
)

// TestManagedFieldsAreNotKept: they are often longer than the object, especially for Kubernetes nodes, and no write
// needs them.
func TestManagedFieldsAreNotKept(t *testing.T) {
	s := &Store[*corev1.Node]{kept: lru.New(keptVersions)}
	given := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "n", ResourceVersion: "7", UID: "u", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet"}},
	}}
	s.keep(given)
	kept, ok := s.kept.Get("n")
	require.True(t, ok)
	want := given.DeepCopy()
	want.ManagedFields = nil
	assert.Equal(t, want, kept)
	assert.NotSame(t, given, kept)
	assert.Len(t, given.ManagedFields, 1, "the caller's object is the caller's")
}
