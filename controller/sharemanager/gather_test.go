package sharemanager

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

// The class may not be in the cache yet, or may no longer exist.
func TestThePodFollowsTheTopologiesOfItsStorageClass(t *testing.T) {
	class := &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "zonal"},
		AllowedTopologies: []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{
			{Key: "topology.kubernetes.io/zone", Values: []string{"z"}},
		}}},
	}
	for name, seed := range map[string]func(*testutil.Harness){
		"in the cache":     func(h *testutil.Harness) { h.Seed(class); h.CatchUp() },
		"not in the cache": func(h *testutil.Harness) { h.Seed(class) },
		"gone":             func(*testutil.Harness) {},
	} {
		t.Run(name, func(t *testing.T) {
			h, c := start(t)
			seed(h)
			pv := claim("", nil)[0]
			pv.Spec.StorageClassName = "zonal"
			c.Claims = claims{pv}
			syncs(t, h, c, nil)
			h.CatchUp()
			pod, err := c.Pods.GetRO("share-manager-vol")
			require.NoError(t, err)
			terms := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
			require.Len(t, terms, 1)
			assert.Len(t, terms[0].MatchFields, 2, "nodes b and c")
			assert.Equal(t, name != "gone", len(terms[0].MatchExpressions) == 1)
		})
	}
}

func TestThePodPrefersNodesWithACopy(t *testing.T) {
	used := func(e *longhorn.Engine) { e.Status.Epoch = &longhorn.Epoch{Members: []string{"r-a"}} }
	for name, tc := range map[string]struct {
		engine *longhorn.Engine
		want   []string
	}{
		"a new volume without an engine → all its replicas":     {nil, []string{"a", "b"}},
		"a new volume, no data was ever written → all replicas": {build.Engine("vol"), []string{"a", "b"}},
		"an epoch is recorded → only its members have the data": {build.Engine("vol", used), []string{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			failed := build.PlacedReplica("r-c", "vol", "c", "disk-c", func(r *longhorn.Replica) { r.Spec.FailedAt = "2026-01-02T10:00:00Z" })
			objects := []runtime.Object{build.PlacedReplica("r-a", "vol", "a", "disk-a"), build.PlacedReplica("r-b", "vol", "b", "disk-b"), failed, build.Replica("r-d", "vol")}
			if tc.engine != nil {
				objects = append(objects, tc.engine)
			}
			h, c := start(t, objects...)
			syncs(t, h, c, nil)
			h.CatchUp()
			pod, err := c.Pods.GetRO("share-manager-vol")
			require.NoError(t, err)
			var preferred []string
			for _, term := range pod.Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
				preferred = append(preferred, term.Preference.MatchFields[0].Values...)
			}
			assert.ElementsMatch(t, tc.want, preferred)
		})
	}
}

// noClass is an API server that must not be asked for a class.
type noClass struct {
	ClassStore
	t *testing.T
}

func (n noClass) Live(context.Context, string) (*storagev1.StorageClass, error) {
	n.t.Error("the API server is asked for a class")
	return nil, errors.New("asked")
}

func TestTheAPIServerIsAskedForAClassOnlyWhereItMatters(t *testing.T) {
	named := claim("", nil)[0]
	named.Spec.StorageClassName = "zonal"
	for name, tc := range map[string]struct {
		claims claims
		isUsed bool
		cached []runtime.Object
	}{
		"no claim":                      {nil, true, nil},
		"a claim without a class":       {claim("", nil), true, nil},
		"a class, and no pod is wanted": {claims{named}, false, nil},
		"a class that the cache shows":  {claims{named}, true, []runtime.Object{&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "zonal"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			h, c := start(t, tc.cached...)
			c.Claims, c.Classes = tc.claims, noClass{c.Classes, t}
			if !tc.isUsed {
				stopUsing(t, h, c)
			}
			syncs(t, h, c, nil)
		})
	}
}
