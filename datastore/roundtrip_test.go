package datastore

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

// TestAPatchMakesWhatThePUTWouldHaveMade: for any two versions of an object, this release reads the stored object after
// the patch as the second version, with either kind of patch.
func TestAPatchMakesWhatThePUTWouldHaveMade(t *testing.T) {
	refused := 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		base, obj := randomNode(r), randomNode(r)
		if r.IntN(2) == 0 {
			obj = base.DeepCopy()
			other := randomNode(r)
			obj.Finalizers, obj.OwnerReferences, obj.Status.Conditions = other.Finalizers, other.OwnerReferences, other.Status.Conditions
		}
		stored := sparse(t, r, base)
		for _, part := range []half{notStatus, status} {
			p, err := newPatch(base, obj, part)
			require.NoError(t, err)
			bodies := [][]byte{p.body}
			if p.whole != nil {
				bodies = append(bodies, p.whole)
			}
			for i, body := range bodies {
				var after []byte
				if p.kind == types.JSONPatchType && i == 0 {
					steps, err := jsonpatch.DecodePatch(body)
					require.NoError(t, err)
					if after, err = steps.Apply(stored); err != nil {
						refused++ // the API server says that too, and the whole lists are sent
						continue
					}
				} else {
					after, err = jsonpatch.MergePatch(stored, body)
					require.NoError(t, err)
				}
				got := &longhorn.Node{}
				require.NoError(t, json.Unmarshal(after, got))
				want := base.DeepCopy()
				if part == status {
					want.Status = obj.Status
				} else {
					want.ObjectMeta, want.Spec = obj.ObjectMeta, obj.Spec
				}
				g, _ := tree(got, part)
				w, _ := tree(want, part)
				require.Equal(t, w, g, "seed %d: %s onto %s", seed, body, stored)
			}
		}
	}
	t.Logf("%d patches into lists did not fit", refused)
}

// sparse returns a stored object that is read as base: an earlier release did not know all members.
func sparse(t *testing.T, r *rand.Rand, base *longhorn.Node) []byte {
	text, err := json.Marshal(base)
	require.NoError(t, err)
	var all map[string]any
	require.NoError(t, json.Unmarshal(text, &all))
	same := func() bool {
		sparse, err := json.Marshal(all)
		require.NoError(t, err)
		read := &longhorn.Node{}
		require.NoError(t, json.Unmarshal(sparse, read))
		again, err := json.Marshal(read)
		return err == nil && bytes.Equal(again, text)
	}
	var thin func(at any)
	thin = func(at any) {
		switch at := at.(type) {
		case []any:
			for _, item := range at {
				thin(item)
			}
		case map[string]any:
			for _, key := range slices.Sorted(maps.Keys(at)) {
				was := at[key]
				thin(was)
				if r.IntN(3) > 0 {
					continue
				}
				if delete(at, key); !same() {
					at[key] = was
				}
			}
		}
	}
	thin(all)
	text, err = json.Marshal(all)
	require.NoError(t, err)
	return text
}

func randomNode(r *rand.Rand) *longhorn.Node {
	strs := func() []string {
		switch r.IntN(4) {
		case 0:
			return nil
		case 1:
			return []string{}
		case 2:
			return []string{"a/b~1"}
		}
		return []string{"x", "a/b~1"}
	}
	dict := func() map[string]string {
		m := map[string]string{}
		if r.IntN(4) == 0 {
			return nil
		}
		for _, k := range []string{"a/b", "c~d", "~1", "", "plain"} {
			if r.IntN(2) == 0 {
				m[k] = []string{"", "v", "w"}[r.IntN(3)]
			}
		}
		return m
	}
	conds := func() []longhorn.Condition {
		if r.IntN(5) == 0 {
			return nil
		}
		l := []longhorn.Condition{}
		for _, i := range r.Perm(4) {
			if r.IntN(3) > 0 {
				l = append(l, longhorn.Condition{Type: string(rune('A' + i)), Status: "True", Message: []string{"", "m"}[r.IntN(2)]})
			}
		}
		if r.IntN(10) == 0 && len(l) > 0 {
			l = append(l, l[0])
		}
		return l
	}
	n := &longhorn.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", ResourceVersion: "7", Finalizers: strs(), Annotations: dict(), Labels: dict()}}
	for _, i := range r.Perm(3) {
		if r.IntN(2) == 0 {
			yes := r.IntN(2) == 0
			o := metav1.OwnerReference{Kind: "k", Name: []string{"n", "m"}[r.IntN(2)], UID: types.UID(rune('a' + i))}
			if r.IntN(2) == 0 {
				o.Controller = &yes
			}
			n.OwnerReferences = append(n.OwnerReferences, o)
		}
	}
	n.Spec.Tags = strs()
	if r.IntN(4) > 0 {
		n.Spec.Disks = map[string]longhorn.DiskSpec{}
		n.Status.DiskStatus = map[string]longhorn.DiskStatus{}
	}
	for _, k := range []string{"d/1", "d~2", "d3"} {
		if n.Spec.Disks == nil || r.IntN(2) == 0 {
			continue
		}
		n.Spec.Disks[k] = longhorn.DiskSpec{Path: []string{"", "/p"}[r.IntN(2)], Tags: strs(), StorageReserved: r.Int64N(2) << 55}
		s := longhorn.DiskStatus{Conditions: conds(), StorageMaximum: r.Int64N(2)<<60 + r.Int64N(3)}
		if r.IntN(3) > 0 {
			s.ScheduledReplica = map[string]int64{}
			for _, x := range []string{"r/1", "r2"} {
				if r.IntN(2) == 0 {
					s.ScheduledReplica[x] = r.Int64N(2)
				}
			}
		}
		n.Status.DiskStatus[k] = s
	}
	n.Status.Conditions = conds()
	n.Status.Region = []string{"", "r"}[r.IntN(2)]
	return n
}
