package replicateardown_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/controller/replicateardown"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

// read are the objects of an API server, by name.
type read[T any] map[string]T

func (r read[T]) Live(_ context.Context, name string) (T, error) {
	var none T
	o, ok := r[name]
	switch {
	case name == "":
		return none, errors.New("a client cannot ask for an object without a name")
	case !ok:
		return none, apierrors.NewNotFound(longhorn.Resource("objects"), name)
	}
	return o, nil
}

type listed []*longhorn.Replica

func (l listed) ListLive(context.Context, metav1.ListOptions) ([]*longhorn.Replica, error) {
	return l, nil
}

// Siblings may have no place, or a place on a node that is gone.
func TestIsLastCopyReadsOnlyNodesThatReplicasName(t *testing.T) {
	stores := func(siblings ...*longhorn.Replica) replicateardown.Stores {
		return replicateardown.Stores{
			Volumes: read[*longhorn.Volume]{"vol": build.Volume("vol")}, Engines: read[*longhorn.Engine]{"vol-e-0": recorded("r", "s")},
			Nodes: read[*longhorn.Node](nodes()), Replicas: listed(append(siblings, placed(made, gone))),
		}
	}
	unplaced := build.Replica("q", "vol", made)
	for name, tc := range map[string]struct {
		stores replicateardown.Stores
		kept   bool
	}{
		"the other's node is there → goes":  {stores(unplaced, build.PlacedReplica("s", "vol", "m", "disk-m", made)), false},
		"the other's node is gone → kept":   {stores(unplaced, build.PlacedReplica("s", "vol", "x", "disk-m", made)), true},
		"the other one has no place → kept": {stores(unplaced), true},
	} {
		t.Run(name, func(t *testing.T) {
			kept, err := tc.stores.IsLastCopy(t.Context(), placed(made, gone))
			require.NoError(t, err)
			assert.Equal(t, tc.kept, kept)
		})
	}
}
