package csi

import (
	"testing"
	"testing/synctest"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"google.golang.org/grpc/codes"
)

const testEndpoint = "nfs://10.0.0.1/pvc-1"

// sharedIn changes the test volume to a shared one with a share manager on n2, with tickets.
func sharedIn(state, endpoint string, tickets ...Ticket) func(*Volume) {
	return func(v *Volume) {
		volumeIn("attached", "n2", tickets...)(v)
		v.AccessMode, v.ShareState, v.ShareEndpoint = "rwx", state, endpoint
	}
}

func TestPublishOfASharedVolume(t *testing.T) {
	served := map[string]string{"shareEndpoint": testEndpoint}
	detached := func(v *Volume) { volumeIn("detached", "")(v); v.AccessMode = "rwx" }
	cases := []struct {
		name    string
		volume  func(*Volume)
		then    func(*fakeService)
		as      *csipb.VolumeCapability
		code    codes.Code
		message string
		want    map[string]string
		calls   []string
	}{
		{
			name: "served already → its endpoint", volume: sharedIn("running", testEndpoint, ticketOn("n1", true)), want: served,
		},
		{
			name: "served on another node for another one → a ticket, and its endpoint", volume: sharedIn("running", testEndpoint, ticketOn("n2", true)),
			then: after(5*time.Second, sharedIn("running", testEndpoint, ticketOn("n1", true), ticketOn("n2", true))),
			want: served, calls: []string{"attach pvc-1 n1"},
		},
		{
			name: "detached → its endpoint when the ticket is satisfied and the endpoint known", volume: detached,
			then: func(f *fakeService) {
				start := time.Now()
				f.looked = func(f *fakeService, name string) {
					switch passed := time.Since(start); {
					case passed >= 20*time.Second:
						f.edit(name, sharedIn("running", testEndpoint, ticketOn("n1", true)))
					case passed >= 10*time.Second:
						f.edit(name, sharedIn("starting", "", ticketOn("n1", true)))
					case passed >= 5*time.Second:
						f.edit(name, sharedIn("starting", testEndpoint, ticketOn("n1", false)))
					}
				}
			},
			want: served, calls: []string{"attach pvc-1 n1"},
		},
		{
			name: "detached and not ready → aborted",
			volume: func(v *Volume) {
				detached(v)
				v.Ready, v.NotReadyMessage = false, "no room"
			},
			code: codes.Aborted, message: "no room",
		},
		{
			name: "being attached for its share manager, not ready → waited for",
			volume: func(v *Volume) {
				sharedIn("starting", "")(v)
				v.Ready = false
			},
			then: after(5*time.Second, sharedIn("running", testEndpoint, ticketOn("n1", true))),
			want: served, calls: []string{"attach pvc-1 n1"},
		},
		{
			name: "never served → the ticket's reason", volume: sharedIn("starting", "", Ticket{ID: ticketID(testVolume, testDriver, "n1"), NodeID: "n1", Message: "no node fits"}),
			code: codes.DeadlineExceeded, message: "not served over NFS in time: no node fits",
		},
		{
			name: "never served, for no known reason → how the share manager fares", volume: sharedIn("starting", "", ticketOn("n1", false)),
			code: codes.DeadlineExceeded, message: "its share manager is starting",
		},
		{
			name: "a satisfied ticket and no endpoint → not published", volume: sharedIn("running", "", ticketOn("n1", true)),
			code: codes.DeadlineExceeded, message: "its share manager is running",
		},
		{
			name: "a claim of one node → its endpoint", volume: sharedIn("running", testEndpoint, ticketOn("n1", true)),
			as: capabilityOf(writer, "ext4"), want: served,
		},
		{
			name: "a claim of many nodes for a volume of one → refused, saying what to do",
			volume: func(v *Volume) {
				volumeIn("detached", "")(v)
				v.AccessMode = "rwo"
			},
			code: codes.FailedPrecondition, message: "the volume's accessMode is rwo; change accessMode to rwx while the volume is detached", calls: []string{"detach pvc-1 "},
		},
		{
			name: "a claim of many nodes for a volume of one, attached for us → refused", volume: volumeIn("attached", "n1", ticketOn("n1", true)),
			code: codes.FailedPrecondition, message: "accessMode is rwo", calls: []string{"detach pvc-1 n1"},
		},
		{
			name: "a claim for a block volume → refused", volume: sharedIn("running", testEndpoint, ticketOn("n1", true)), as: blockOf(writer),
			code: codes.FailedPrecondition, message: "NFS has no block devices", calls: []string{"detach pvc-1 n1"},
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeService("n1", "n2")
				f.edit(testVolume, c.volume)
				if c.then != nil {
					c.then(f)
				}
				if c.as == nil {
					c.as = capabilityOf(multiNode, "ext4")
				}
				s := &controllerServer{core: coreOver(f)}
				response, err := s.ControllerPublishVolume(t.Context(), &csipb.ControllerPublishVolumeRequest{VolumeId: testVolume, NodeId: "n1", VolumeCapability: c.as})
				wantCode(t, "publish", err, c.code)
				checkError(t, err, c.message)
				assert.Equal(t, c.want, response.GetPublishContext())
				assert.Equal(t, c.calls, f.made())
			})
		})
	}
}

func TestPublishOfADeviceSaysNothingOfAShare(t *testing.T) {
	f := newFakeService("n1")
	f.edit(testVolume, volumeIn("attached", "n1", ticketOn("n1", true)))
	s := &controllerServer{core: coreOver(f)}
	response, err := s.ControllerPublishVolume(t.Context(), &csipb.ControllerPublishVolumeRequest{VolumeId: testVolume, NodeId: "n1", VolumeCapability: capabilityOf(writer, "ext4")})
	wantCode(t, "publish", err, codes.OK)
	assert.Empty(t, response.GetPublishContext())
}

func TestUnpublishOfASharedVolumeWaitsForItsTicketAlone(t *testing.T) {
	for _, c := range []struct {
		name string
		// stays: removing the ticket fails.
		stays bool
		code  codes.Code
	}{
		{"the volume is attached, and being detached, where its share manager is → unpublished", false, codes.OK},
		{"the ticket stays → deadline exceeded", true, codes.DeadlineExceeded},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeService("n1", "n2")
				f.edit(testVolume, sharedIn("stopping", "", ticketOn("n2", true)))
				f.edit(testVolume, func(v *Volume) { v.State = stateDetaching })
				if c.stays {
					f.looked = func(f *fakeService, name string) {
						f.edit(name, sharedIn("running", testEndpoint, ticketOn("n2", true)))
					}
				}
				err := toStatus(coreOver(f).unpublish(t.Context(), testVolume, "n2"))
				wantCode(t, "unpublish", err, c.code)
			})
		})
	}
}

func TestValidateComparesWithTheVolume(t *testing.T) {
	f := newFakeService()
	f.edit("pvc-1", volumeIn("detached", ""))
	f.edit("pvc-2", func(v *Volume) { v.AccessMode = "rwx" })
	s := &controllerServer{core: coreOver(f)}
	for _, c := range []struct {
		volume string
		as     *csipb.VolumeCapability
		want   string // the reason if not confirmed; empty: confirmed
	}{
		{"pvc-1", capabilityOf(writer, ""), ""},
		{"pvc-1", capabilityOf(multiNode, ""), "accessMode is rwo"},
		{"pvc-2", capabilityOf(multiNode, ""), ""},
		{"pvc-2", capabilityOf(multiReader, ""), ""},
		{"pvc-2", capabilityOf(writer, ""), ""},
		{"pvc-2", blockOf(writer), "NFS has no block devices"},
	} {
		response, err := s.ValidateVolumeCapabilities(t.Context(), &csipb.ValidateVolumeCapabilitiesRequest{
			VolumeId: c.volume, VolumeCapabilities: []*csipb.VolumeCapability{c.as},
		})
		wantCode(t, "validate", err, codes.OK)
		assert.Equal(t, c.want == "", response.GetConfirmed() != nil, "%s as %s", c.volume, c.as)
		assert.Contains(t, response.GetMessage(), c.want)
	}
}
