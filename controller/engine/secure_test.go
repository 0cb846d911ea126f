package engine

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestWhichReplicasAreReachedWithoutTLS(t *testing.T) {
	const address = "10.0.0.8:8500"
	for _, tc := range []struct {
		name   string
		change func(s *longhorn.ReplicaStatus)
		want   bool
	}{
		{"a process that says nothing of TLS serves it there → without", func(*longhorn.ReplicaStatus) {}, true},
		{"the process says that it knows TLS", func(s *longhorn.ReplicaStatus) { s.SecureUUID = "p" }, false},
		{"an earlier process said so, this one says nothing → without", func(s *longhorn.ReplicaStatus) { s.SecureUUID = "before" }, true},
		{"it is served elsewhere now: who is there must prove itself", func(s *longhorn.ReplicaStatus) { s.IP = "10.0.0.9" }, false},
		{"at another port", func(s *longhorn.ReplicaStatus) { s.Port = 1 }, false},
		{"it does not run", func(s *longhorn.ReplicaStatus) { s.CurrentState = longhorn.InstanceStateStopped }, false},
		{"its node is down", func(s *longhorn.ReplicaStatus) { s.CurrentState = longhorn.InstanceStateUnknown }, false},
		{"its process is not known", func(s *longhorn.ReplicaStatus) { s.UUID = "" }, false},
		{"nothing is known", func(s *longhorn.ReplicaStatus) { *s = longhorn.ReplicaStatus{} }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := build.PlacedReplica("vol-r-1", "vol", "m", "disk")
			r.Status.CurrentState, r.Status.IP, r.Status.Port, r.Status.UUID = longhorn.InstanceStateRunning, "10.0.0.8", 8500, "p"
			tc.change(&r.Status)
			assert.Equal(t, tc.want, isOfEarlierRelease(r, address))
		})
	}
}

func TestTheSettingSaysWhetherMembersAreReachedOverTLS(t *testing.T) {
	for _, tc := range []struct {
		name string
		objs []runtime.Object
		want bool
	}{
		{"no setting → TLS", nil, true},
		{"true → TLS", []runtime.Object{build.Setting(settings.DataPathEncryption, "true")}, true},
		{"false → none", []runtime.Object{build.Setting(settings.DataPathEncryption, "false")}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := wantedEngine()
			_, c := begin(t, &fakePlane{observed: Observed{Phase: types.PhaseAbsent, Process: "p"}}, append(tc.objs, e)...)
			s, err := c.spec(t.Context(), e)
			require.NoError(t, err)
			assert.Equal(t, []Member{{Name: "vol-r-1", UID: s.Members[0].UID, Address: "10.0.0.8:8500", TLS: tc.want}}, s.Members)
		})
	}
}
