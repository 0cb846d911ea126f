package datastore_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// TestAFinalizerIsDroppedAlone: the list is written as a whole. So entries of other clients stay only because the
// version is compared.
func TestAFinalizerIsDroppedAlone(t *testing.T) {
	ours, other := any(types.Finalizer), any("example.com/other")
	for _, c := range []struct {
		name           string
		before, during []any // during: another client's write after the read; nil: none
		want           any
	}{
		{"ours alone → the list goes", []any{ours}, nil, nil},
		{"another before it → the other stays", []any{other, ours}, nil, []any{other}},
		{"another after it → the other stays", []any{ours, other}, nil, []any{other}},
		{"only another's → nothing changes", []any{other}, nil, []any{other}},
		{"another is added meanwhile → conflict", []any{ours}, []any{ours, other}, []any{ours, other}},
		{"another goes meanwhile → conflict", []any{ours, other}, []any{ours}, []any{ours}},
		{"the order changes meanwhile → conflict", []any{ours, other}, []any{other, ours}, []any{other, ours}},
		{"ours goes meanwhile → conflict", []any{ours, other}, []any{other}, []any{other}},
	} {
		for _, o := range origins {
			t.Run(fmt.Sprintf("%s, %s", c.name, o.name), func(t *testing.T) {
				s := newAPIServer(t)
				n := object(t, newerNode)
				at(n, "metadata")["finalizers"] = c.before
				s.put(key, n)
				nodes, read := o.get(t, s)
				if c.during != nil {
					s.change(key, func(o map[string]any) { at(o, "metadata")["finalizers"] = c.during })
				}
				types.RemoveFinalizer(read)
				_, err := nodes.Update(t.Context(), read)
				if c.during == nil {
					require.NoError(t, err)
				} else {
					require.True(t, apierrors.IsConflict(err), "got %v", err)
				}
				assert.Equal(t, c.want, at(s.stored(key), "metadata")["finalizers"])
			})
		}
	}
}
