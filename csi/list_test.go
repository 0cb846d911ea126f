package csi

import (
	"errors"
	"testing"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestListVolumesShowsWhereTheyArePublished(t *testing.T) {
	f := newFakeService("n1")
	ours := ticketID("pvc-2", testDriver, "n1")
	f.edit("pvc-2", func(v *Volume) {
		v.SizeBytes = 2 << 20
		v.Tickets[ours] = Ticket{ID: ours, Type: attacherType, NodeID: "n1"}
	})
	f.edit("pvc-1", func(v *Volume) { v.Tickets["api"] = Ticket{ID: "api", Type: "longhorn-api", NodeID: "n1"} })
	f.edit("pvc-3", func(v *Volume) { v.Tickets["csi-other"] = Ticket{ID: "csi-other", Type: attacherType, NodeID: "n1"} })
	s := &controllerServer{core: coreOver(f)}
	list := func(r *csipb.ListVolumesRequest) *csipb.ListVolumesResponse {
		t.Helper()
		response, err := s.ListVolumes(t.Context(), r)
		require.NoError(t, err)
		return response
	}
	all := list(&csipb.ListVolumesRequest{})
	require.Len(t, all.Entries, 3)
	assert.Empty(t, all.NextToken)
	assert.Equal(t, "pvc-1", all.Entries[0].Volume.VolumeId)
	assert.Empty(t, all.Entries[0].Status.PublishedNodeIds) // a user's ticket
	assert.Equal(t, []string{"n1"}, all.Entries[1].Status.PublishedNodeIds)
	assert.Equal(t, int64(2<<20), all.Entries[1].Volume.CapacityBytes)
	assert.Empty(t, all.Entries[2].Status.PublishedNodeIds) // of another driver

	f.edit("pvc-2", func(v *Volume) { v.Tickets = nil }) // detached by force
	assert.Empty(t, list(&csipb.ListVolumesRequest{}).Entries[1].Status.PublishedNodeIds)

	first := list(&csipb.ListVolumesRequest{MaxEntries: 2})
	require.Len(t, first.Entries, 2)
	f.remove("pvc-2")
	rest := list(&csipb.ListVolumesRequest{StartingToken: first.NextToken, MaxEntries: 2})
	require.Len(t, rest.Entries, 1)
	assert.Equal(t, "pvc-3", rest.Entries[0].Volume.VolumeId)
	assert.Empty(t, rest.NextToken)

	_, err := s.ListVolumes(t.Context(), &csipb.ListVolumesRequest{StartingToken: "x"})
	assert.Equal(t, codes.Aborted, status.Code(err))
	f.fail["list"] = errors.New("away")
	_, err = s.ListVolumes(t.Context(), &csipb.ListVolumesRequest{})
	assert.Equal(t, codes.Unavailable, status.Code(err))
}
