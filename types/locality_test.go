package types

import (
	"testing"

	"github.com/stretchr/testify/assert"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

func TestStrictLocalNodes(t *testing.T) {
	replica := func(name, node string) *longhorn.Replica {
		r := &longhorn.Replica{}
		r.Name, r.Spec.NodeID = name, node
		return r
	}
	good := replica("good", "d")
	good.Spec.LastHealthyAt = "2026-01-02T03:04:05Z"
	replicas := []*longhorn.Replica{replica("r3", "c"), replica("r1", "a"), replica("r2", "a"), replica("r4", ""), good}
	members := func(names ...string) *longhorn.Engine {
		e := &longhorn.Engine{}
		e.Status.Epoch = &longhorn.Epoch{Members: names}
		return e
	}
	for _, tc := range []struct {
		name     string
		locality longhorn.DataLocality
		engine   *longhorn.Engine
		want     []string
	}{
		{"not strict-local → anywhere", longhorn.DataLocalityBestEffort, members("r1"), nil},
		{"members on two nodes → these, sorted, each once", longhorn.DataLocalityStrictLocal, members("r3", "r1", "r2"), []string{"a", "c"}},
		{"a healthy replica that is no member → does not count", longhorn.DataLocalityStrictLocal, members("r3"), []string{"c"}},
		{"a member without a place, one that is gone → anywhere", longhorn.DataLocalityStrictLocal, members("r4", "r9"), nil},
		{"no epoch → where a replica was good", longhorn.DataLocalityStrictLocal, &longhorn.Engine{}, []string{"d"}},
		{"no engine → the same", longhorn.DataLocalityStrictLocal, nil, []string{"d"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := &longhorn.Volume{}
			v.Spec.DataLocality = tc.locality
			assert.Equal(t, tc.want, StrictLocalNodes(v, tc.engine, replicas))
		})
	}
}

func TestStrictLocalRefusal(t *testing.T) {
	assert.Empty(t, StrictLocalRefusal("vol", "a", nil))
	assert.Empty(t, StrictLocalRefusal("vol", "a", []string{"b", "a"}))
	assert.Equal(t, `volume "vol" cannot be attached to node "a": its dataLocality is strict-local, and its data is on node "b"`, StrictLocalRefusal("vol", "a", []string{"b"}))
	assert.Equal(t, `volume "vol" cannot be attached to node "a": its dataLocality is strict-local, and its data is on nodes b, c`, StrictLocalRefusal("vol", "a", []string{"b", "c"}))
}
