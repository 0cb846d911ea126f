package csi

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestPublishSaysWhereTheDataIs: only for a strict-local volume, and only when one node has the data.
func TestPublishSaysWhereTheDataIs(t *testing.T) {
	for _, c := range []struct {
		name     string
		locality string
		nodes    []string      // with the data
		known    time.Duration // after the attachment, until the manager knows the nodes
		want     map[string]string
		after    time.Duration // the answer
	}{
		{name: "strict-local → its node", locality: "strict-local", nodes: []string{"n1"}, want: map[string]string{"strictLocalNode": "n1"}},
		{name: "the manager knows the node two seconds later → waited for", locality: "strict-local", nodes: []string{"n1"}, known: 2 * time.Second, want: map[string]string{"strictLocalNode": "n1"}, after: 2 * time.Second},
		{name: "the manager never says so → attached all the same", locality: "strict-local", known: time.Hour, after: 3 * time.Second},
		{name: "data on two nodes → none", locality: "strict-local", nodes: []string{"n1", "n2"}},
		{name: "not strict-local any more → none", locality: "best-effort", nodes: []string{"n1"}},
		{name: "no locality → none"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeService("n1")
				f.instant = true
				f.edit(testVolume, volumeIn("detached", ""))
				f.edit(testVolume, func(v *Volume) { v.Asked.DataLocality = c.locality })
				start := time.Now()
				f.looked = func(f *fakeService, name string) {
					if time.Since(start) >= c.known {
						f.edit(name, func(v *Volume) { v.StrictLocalNodes = c.nodes })
					}
				}
				s := &controllerServer{core: coreOver(f)}
				answer, err := s.ControllerPublishVolume(t.Context(), &csipb.ControllerPublishVolumeRequest{
					VolumeId: testVolume, NodeId: "n1", VolumeCapability: capabilityOf(writer, "ext4"),
				})
				require.NoError(t, err)
				assert.Equal(t, c.want, answer.PublishContext)
				assert.Equal(t, c.after, time.Since(start))
			})
		})
	}
}

func TestCreateChecksTheNodeOfTheFirstPod(t *testing.T) {
	for _, c := range []struct {
		name     string
		locality string
		topology *csipb.TopologyRequirement
		size     int64
		fail     error
		code     codes.Code
		text     string
	}{
		{name: "room there → created", locality: "strict-local", topology: firstNode("n1"), size: 1 << 30},
		{
			name: "no room there → refused, for Kubernetes to choose another node", locality: "strict-local", topology: firstNode("n1"), size: 2 << 30, code: codes.ResourceExhausted,
			text: "creating volume pvc-1: node n1 has no space for its 2 GiB; the largest possible strict-local volume there is 1 GiB",
		},
		{name: "no node yet → created, and placed where it is attached", locality: "strict-local", size: 2 << 30},
		{name: "its data may be elsewhere → created", locality: "best-effort", topology: firstNode("n1"), size: 2 << 30},
		{name: "a manager that cannot tell → created", locality: "strict-local", topology: firstNode("n1"), size: 2 << 30, fail: ErrNotFound},
		{name: "no answer → asked again", locality: "strict-local", topology: firstNode("n1"), size: 1 << 30, fail: errors.New("refused"), code: codes.Unavailable, text: "asking the manager for the capacity of node n1: refused"},
		{
			name: "a topology of another kind → refused", locality: "strict-local", size: 1 << 30, code: codes.InvalidArgument, text: `accessible topology: segment "zone" is not supported; it must be kubernetes.io/hostname`,
			topology: &csipb.TopologyRequirement{Preferred: []*csipb.Topology{{Segments: map[string]string{"zone": "a"}}}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFakeService("n1")
			f.instant = true
			f.fail["capacity n1"] = c.fail
			s := &controllerServer{core: coreOver(f)}
			_, err := s.CreateVolume(t.Context(), &csipb.CreateVolumeRequest{
				Name: testVolume, CapacityRange: &csipb.CapacityRange{RequiredBytes: c.size}, AccessibilityRequirements: c.topology,
				VolumeCapabilities: []*csipb.VolumeCapability{capabilityOf(writer, "ext4")}, Parameters: map[string]string{"dataLocality": c.locality},
			})
			assert.Equal(t, c.code, status.Code(err))
			assert.Equal(t, c.text, status.Convert(err).Message())
			assert.Equal(t, c.code == codes.OK, len(f.made()) == 1, f.made())
		})
	}
}

func firstNode(node string) *csipb.TopologyRequirement {
	return &csipb.TopologyRequirement{Preferred: []*csipb.Topology{{Segments: map[string]string{"kubernetes.io/hostname": node}}}}
}
