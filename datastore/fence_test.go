package datastore_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

const key = "nodes/node-1"

type nodeStore = *datastore.Store[*longhorn.Node]

// writes are the forms that a write can take on the wire.
var writes = []struct {
	name string
	do   func(t *testing.T, s nodeStore, n *longhorn.Node) (*longhorn.Node, error)
}{
	{"Update of a member", func(t *testing.T, s nodeStore, n *longhorn.Node) (*longhorn.Node, error) {
		n.Spec.AllowScheduling = false
		return s.Update(t.Context(), n)
	}},
	{"Update within a list", func(t *testing.T, s nodeStore, n *longhorn.Node) (*longhorn.Node, error) {
		n.OwnerReferences[1].Name = "other"
		return s.Update(t.Context(), n)
	}},
	{"Update of nothing", func(t *testing.T, s nodeStore, n *longhorn.Node) (*longhorn.Node, error) {
		return s.Update(t.Context(), n)
	}},
	{"UpdateStatus of a member", func(t *testing.T, s nodeStore, n *longhorn.Node) (*longhorn.Node, error) {
		n.Status.Zone = "other"
		return s.UpdateStatus(t.Context(), n)
	}},
	{"UpdateStatus within a list", func(t *testing.T, s nodeStore, n *longhorn.Node) (*longhorn.Node, error) {
		condition(n, 1).Message = "other"
		return s.UpdateStatus(t.Context(), n)
	}},
	{"UpdateStatus of nothing", func(t *testing.T, s nodeStore, n *longhorn.Node) (*longhorn.Node, error) {
		return s.UpdateStatus(t.Context(), n)
	}},
}

// origins are the places from which the writer gets its object.
var origins = []struct {
	name string
	get  func(t *testing.T, s *apiServer) (nodeStore, *longhorn.Node)
}{
	{"cached", func(t *testing.T, s *apiServer) (nodeStore, *longhorn.Node) {
		nodes := s.datastore().Nodes
		require.NoError(t, nodes.Replace([]*longhorn.Node{as(t, s.stored(key), &longhorn.Node{})}, "1"))
		n, err := nodes.Get("node-1")
		require.NoError(t, err)
		return nodes, n
	}},
	{"read live", func(t *testing.T, s *apiServer) (nodeStore, *longhorn.Node) {
		nodes := s.datastore().Nodes
		n, err := nodes.Live(t.Context(), "node-1")
		require.NoError(t, err)
		return nodes, n
	}},
	{"of unknown origin", func(t *testing.T, s *apiServer) (nodeStore, *longhorn.Node) {
		return s.datastore().Nodes, as(t, s.stored(key), &longhorn.Node{})
	}},
}

// TestAWriteIsACompareAndSwap covers the changes by another client between the read and the write.
func TestAWriteIsACompareAndSwap(t *testing.T) {
	meanwhile := []struct {
		name string
		do   func(s *apiServer)
		want func(error) bool
	}{
		{"nothing → accepted", func(*apiServer) {}, func(err error) bool { return err == nil }},
		{"written → conflict", func(s *apiServer) {
			s.change(key, func(o map[string]any) { at(o, "metadata", "labels")["other"] = "1" })
		}, apierrors.IsConflict},
		{"its lists emptied → conflict, though a patch within them does not fit", func(s *apiServer) {
			s.change(key, func(o map[string]any) {
				delete(at(o, "status"), "conditions")
				delete(at(o, "metadata"), "ownerReferences")
			})
		}, apierrors.IsConflict},
		{"deleted → not found, and not made again", func(s *apiServer) { s.remove(key) }, apierrors.IsNotFound},
		{"deleted and made again → conflict", func(s *apiServer) {
			o := s.stored(key)
			s.remove(key)
			s.put(key, o)
		}, apierrors.IsConflict},
		{"made again with the same version, which no API server does → conflict", func(s *apiServer) {
			s.change(key, func(o map[string]any) { at(o, "metadata")["uid"] = "other"; s.version-- })
		}, apierrors.IsConflict},
	}
	for _, m := range meanwhile {
		for _, w := range writes {
			for _, o := range origins {
				t.Run(fmt.Sprintf("%s, %s: %s", w.name, o.name, m.name), func(t *testing.T) {
					s := newAPIServer(t)
					s.put(key, object(t, newerNode))
					nodes, n := o.get(t, s)
					m.do(s)
					before := s.stored(key)
					written, err := w.do(t, nodes, n)
					assert.True(t, m.want(err), "got %v", err)
					assert.Equal(t, err == nil, written != nil)
					if err != nil {
						assert.Equal(t, before, s.stored(key), "what is stored")
					}
				})
			}
		}
	}
}

// TestARefusalThatIsNoConflictStaysWhatItIs: the API server gives the same code for steps that do not fit.
func TestARefusalThatIsNoConflictStaysWhatItIs(t *testing.T) {
	for _, w := range writes {
		s := newAPIServer(t)
		s.put(key, object(t, newerNode))
		s.refuse = apierrors.NewInvalid(schema.GroupKind{Kind: "Node"}, "node-1", field.ErrorList{field.Invalid(field.NewPath("spec"), 1, "the rule")})
		nodes, n := origins[0].get(t, s)
		_, err := w.do(t, nodes, n)
		assert.True(t, apierrors.IsInvalid(err), "%s: %v", w.name, err)
		assert.ErrorContains(t, err, "the rule", w.name)
	}
}

// TestStepsThatDoNotFitAreNoEnd: the object that this release's types read may differ, in its members, from the stored
// object. Then the list is written as a whole.
func TestStepsThatDoNotFitAreNoEnd(t *testing.T) {
	for _, w := range writes {
		if !strings.HasSuffix(w.name, "within a list") {
			continue
		}
		t.Run(w.name, func(t *testing.T) {
			s := newAPIServer(t)
			s.put(key, object(t, newerNode))
			nodes := s.datastore().Nodes
			n, err := nodes.Live(t.Context(), "node-1")
			require.NoError(t, err)
			delete(at(s.objects[key], "status"), "conditions") // and the version stays
			delete(at(s.objects[key], "metadata"), "ownerReferences")
			s.taken()
			stored, err := w.do(t, nodes, n)
			require.NoError(t, err)
			assert.Len(t, s.taken(), 3, "the steps, a look at the version, the whole list")
			if strings.HasPrefix(w.name, "UpdateStatus") {
				assert.Equal(t, n.Status.Conditions, stored.Status.Conditions)
			} else {
				assert.Equal(t, n.OwnerReferences, stored.OwnerReferences)
			}
		})
	}
}

// TestAnObjectThatWasNotReadIsNotWritten: without a version there is nothing to compare.
func TestAnObjectThatWasNotReadIsNotWritten(t *testing.T) {
	s := newAPIServer(t)
	s.put(key, object(t, newerNode))
	nodes, n := origins[0].get(t, s)
	n.ResourceVersion = ""
	_, err := nodes.Update(t.Context(), n)
	assert.EqualError(t, err, "update nodes.longhorn.io node-1: the object has no resourceVersion: it was not read from the API server")
	cached, err := nodes.GetRO("node-1")
	require.NoError(t, err)
	_, err = nodes.UpdateStatus(t.Context(), cached)
	assert.ErrorContains(t, err, "the object is the cached one, which must not be modified")
	assert.Empty(t, s.taken())
}

// TestCallersMayChangeWhatTheyWereGiven: a Store keeps its own copy. Otherwise a caller's changes would look like no
// changes.
func TestCallersMayChangeWhatTheyWereGiven(t *testing.T) {
	s := newAPIServer(t)
	nodes := s.datastore().Nodes
	n := as(t, object(t, newerNode), &longhorn.Node{})
	for i, step := range []func() (*longhorn.Node, error){
		func() (*longhorn.Node, error) { return nodes.Create(t.Context(), n) },
		func() (*longhorn.Node, error) { return nodes.UpdateStatus(t.Context(), n) },
		func() (*longhorn.Node, error) { return nodes.Update(t.Context(), n) },
		func() (*longhorn.Node, error) { return nodes.Live(t.Context(), "node-1") },
		func() (*longhorn.Node, error) { return nodes.UpdateStatus(t.Context(), n) },
	} {
		var err error
		n, err = step()
		require.NoError(t, err)
		n.Status.Region, n.Status.Conditions[0].Message = fmt.Sprint("region-", i), fmt.Sprint("message-", i)
	}
	assert.Equal(t, "region-3", at(s.stored(key), "status")["region"])
	assert.Equal(t, "message-3", at(s.stored(key), "status", "conditions", 0)["message"])
	assert.Equal(t, []string{"POST " + key, "PATCH " + key + "/status", "PATCH " + key, "GET " + key, "PATCH " + key + "/status"}, s.taken())
}

// TestAWriteIsOneRequest, except for a version that this process no longer has.
func TestAWriteIsOneRequest(t *testing.T) {
	patch := []string{"PATCH " + key}
	update := func(t *testing.T, nodes nodeStore, n *longhorn.Node) *longhorn.Node {
		n.Spec.AllowScheduling = !n.Spec.AllowScheduling
		n, err := nodes.Update(t.Context(), n)
		require.NoError(t, err)
		return n
	}
	for _, o := range origins[:2] {
		t.Run(o.name+" → one, and one for the next write, which the cache is too late for", func(t *testing.T) {
			s := newAPIServer(t)
			s.put(key, object(t, newerNode))
			nodes, n := o.get(t, s)
			s.taken()
			n = update(t, nodes, n)
			assert.Equal(t, patch, s.taken())
			update(t, nodes, n)
			assert.Equal(t, patch, s.taken())
		})
	}
	t.Run("of unknown origin → two", func(t *testing.T) {
		s := newAPIServer(t)
		s.put(key, object(t, newerNode))
		nodes, n := origins[2].get(t, s)
		update(t, nodes, n)
		assert.Equal(t, []string{"GET " + key, "PATCH " + key}, s.taken())
	})
	t.Run("read live before 64 others → two: no more are kept", func(t *testing.T) {
		s := newAPIServer(t)
		s.put(key, object(t, newerNode))
		nodes, n := origins[1].get(t, s)
		for i := range 64 {
			o := object(t, newerNode)
			name := fmt.Sprint("other-", i)
			at(o, "metadata")["name"] = name
			s.put("nodes/"+name, o)
			_, err := nodes.Live(t.Context(), name)
			require.NoError(t, err)
		}
		s.taken()
		update(t, nodes, n)
		assert.Equal(t, []string{"GET " + key, "PATCH " + key}, s.taken())
	})
	t.Run("the cache has passed the version → the conflict is found by a read", func(t *testing.T) {
		s := newAPIServer(t)
		s.put(key, object(t, newerNode))
		nodes, n := origins[0].get(t, s)
		s.change(key, func(map[string]any) {})
		require.NoError(t, nodes.Replace([]*longhorn.Node{as(t, s.stored(key), &longhorn.Node{})}, "2"))
		_, err := nodes.Update(t.Context(), n)
		assert.True(t, apierrors.IsConflict(err), "got %v", err)
		assert.Equal(t, []string{"GET " + key}, s.taken())
	})
}

// TestKeysOfVolumesAreNotKept: a Secret that a Store keeps would stay in memory.
func TestKeysOfVolumesAreNotKept(t *testing.T) {
	s := newAPIServer(t)
	s.put("secrets/s", object(t, "{apiVersion: v1, kind: Secret, metadata: {name: s, namespace: longhorn-system}, data: {key: AQ==}}"))
	secrets := s.datastore().Secrets
	secret, err := secrets.Live(t.Context(), "s")
	require.NoError(t, err)
	s.taken()
	_, err = secrets.Update(t.Context(), secret)
	require.NoError(t, err)
	assert.Equal(t, []string{"GET secrets/s", "PATCH secrets/s"}, s.taken())
}
