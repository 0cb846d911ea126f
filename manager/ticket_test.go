package manager

import (
	"errors"
	"maps"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

func ticket(id string, attacher longhorn.AttacherType, node string) longhorn.AttachmentTicket {
	return longhorn.AttachmentTicket{ID: id, Type: attacher, NodeID: node, Parameters: map[string]string{"disableFrontend": "false"}}
}

func withTickets(tickets ...longhorn.AttachmentTicket) *longhorn.VolumeAttachment {
	va := build.VolumeAttachment("vol")
	for _, t := range tickets {
		if va.Spec.AttachmentTickets == nil {
			va.Spec.AttachmentTickets = map[string]longhorn.AttachmentTicket{}
		}
		va.Spec.AttachmentTickets[t.ID] = t
	}
	return va
}

const (
	people = longhorn.AttacherTypeAPI
	csi    = longhorn.AttacherTypeCSI
)

func TestHoldsTicket(t *testing.T) {
	changed := ticket("", people, "node-1")
	changed.Parameters = map[string]string{"disableFrontend": "true"}
	cases := map[string]struct {
		va       *longhorn.VolumeAttachment
		want     longhorn.AttachmentTicket
		held     bool
		conflict string
	}{
		"no tickets → not held":               {va: withTickets(), want: ticket("", people, "node-1")},
		"the same → held":                     {va: withTickets(ticket("", people, "node-1")), want: ticket("", people, "node-1"), held: true},
		"other parameters → not held":         {va: withTickets(ticket("", people, "node-1")), want: changed},
		"another id → not held":               {va: withTickets(ticket("csi-1", csi, "node-1")), want: ticket("", people, "node-1")},
		"the same id, another node → refused": {va: withTickets(ticket("", people, "node-2")), want: ticket("", people, "node-1"), conflict: `volume "vol" already has attachment "" for node "node-2"; detach it first`},
		"the same id of another holder → refused": {
			va: withTickets(ticket("x", csi, "node-1")), want: ticket("x", people, "node-1"),
			conflict: `attachment "x" of volume "vol" has the attacher type csi-attacher, not longhorn-api`,
		},
		"the same csi id, another node → refused": {
			va: withTickets(ticket("x", csi, "node-2")), want: ticket("x", csi, "node-1"),
			conflict: `volume "vol" already has attachment "x" for node "node-2"; detach it first`,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			held, err := holdsTicket(c.va, c.want)
			if c.conflict != "" {
				wantProblem(t, err, ErrConflict, c.conflict)
			} else {
				require.NoError(t, err)
			}
			assert.Equal(t, c.held, held)
		})
	}
}

func TestPutTicket(t *testing.T) {
	old := ticket("", people, "node-1")
	old.Generation = 4
	answered := withTickets()
	answered.Status.AttachmentTicketStatuses = map[string]longhorn.AttachmentTicketStatus{"": {ID: "", Generation: 7, Satisfied: true}}
	deleting := func(v *longhorn.Volume) { now := metav1.Now(); v.DeletionTimestamp = &now }
	on := func(node string) func(*longhorn.Volume) {
		return func(v *longhorn.Volume) { v.Spec.NodeID, v.Status.CurrentNodeID = node, node }
	}
	cases := map[string]struct {
		volume     func(*longhorn.Volume)
		va         *longhorn.VolumeAttachment
		want       longhorn.AttachmentTicket
		generation int64
		conflict   string
	}{
		"a new ticket → generation 1":                                       {va: withTickets(), want: ticket("", people, "node-1"), generation: 1},
		"changed parameters → next generation":                              {va: withTickets(old), want: ticket("", people, "node-1"), generation: 5},
		"an answer to a dropped ticket of this id → a generation beyond it": {va: answered, want: ticket("", people, "node-1"), generation: 8},
		"attached where it is asked for → added":                            {volume: on("node-1"), va: withTickets(ticket("csi-1", csi, "node-1")), want: ticket("", people, "node-1"), generation: 1},
		"csi, attached elsewhere → waits":                                   {volume: on("node-2"), va: withTickets(ticket("csi-2", csi, "node-2")), want: ticket("csi-1", csi, "node-1"), generation: 1},
		"the volume is deleting → refused":                                  {volume: deleting, va: withTickets(), want: ticket("c", csi, "node-1"), conflict: `volume "vol" is being deleted`},
		"the volume is faulted → refused":                                   {volume: func(v *longhorn.Volume) { v.Status.Robustness = "faulted" }, va: withTickets(), want: ticket("c", csi, "node-1"), conflict: `volume "vol" is faulted`},
		"people, attached elsewhere → refused":                              {volume: on("node-2"), va: withTickets(), want: ticket("", people, "node-1"), conflict: `hostId: "node-1" is refused: volume "vol" is attached to node "node-2", and a volume can be attached to only one node at a time`},
		"people, about to be attached elsewhere → refused":                  {volume: func(v *longhorn.Volume) { v.Spec.NodeID = "node-2" }, va: withTickets(), want: ticket("", people, "node-1"), conflict: `hostId: "node-1" is refused: volume "vol" is attached to node "node-2", and a volume can be attached to only one node at a time`},
		"people, wanted elsewhere by another → refused":                     {va: withTickets(ticket("csi-2", csi, "node-2")), want: ticket("", people, "node-1"), conflict: `hostId: "node-1" is refused: volume "vol" is requested on node "node-2" by attachment "csi-2" (csi-attacher), and a volume can be attached to only one node at a time`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			v := detachedVolume("vol")
			if c.volume != nil {
				c.volume(v)
			}
			before := maps.Clone(c.va.Spec.AttachmentTickets)
			err := putTicket(v, c.va, c.want)
			if c.conflict != "" {
				wantProblem(t, err, ErrConflict, c.conflict)
				assert.Len(t, c.va.Spec.AttachmentTickets, len(before), "a refused ticket was put in")
				return
			}
			require.NoError(t, err)
			got := c.va.Spec.AttachmentTickets[c.want.ID]
			assert.Equal(t, c.generation, got.Generation)
			assert.Equal(t, c.want.NodeID, got.NodeID)
			assert.Equal(t, c.want.Type, got.Type)
		})
	}
}

func TestDropTickets(t *testing.T) {
	all := func() *longhorn.VolumeAttachment {
		return withTickets(ticket("", people, "node-1"), ticket("csi-1", csi, "node-1"))
	}
	cases := map[string]struct {
		va      *longhorn.VolumeAttachment
		req     DetachRequest
		changed bool
		left    int
		refused bool
	}{
		"no id → the ticket of people":      {va: all(), changed: true, left: 1},
		"an id → that ticket":               {va: all(), req: DetachRequest{TicketID: "csi-1"}, changed: true, left: 1},
		"an id and its node → that ticket":  {va: all(), req: DetachRequest{TicketID: "csi-1", NodeID: "node-1"}, changed: true, left: 1},
		"an id and another node → refused":  {va: all(), req: DetachRequest{TicketID: "csi-1", NodeID: "node-2"}, left: 2, refused: true},
		"an id that is not there → nothing": {va: all(), req: DetachRequest{TicketID: "csi-9"}, left: 2},
		"by force → all":                    {va: all(), req: DetachRequest{Force: true}, changed: true, left: 0},
		"by force, none there → nothing":    {va: withTickets(), req: DetachRequest{Force: true}, left: 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			changed, err := dropTickets(c.va, c.req)
			require.Equal(t, c.refused, errors.Is(err, ErrConflict), err)
			require.Equal(t, c.refused, err != nil)
			assert.Equal(t, c.changed, changed)
			assert.Len(t, c.va.Spec.AttachmentTickets, c.left)
		})
	}
}

func TestIsSatisfied(t *testing.T) {
	cases := map[string]struct {
		status map[string]longhorn.AttachmentTicketStatus
		want   bool
	}{
		"no answer → no": {nil, false},
		"an answer to this generation → as it says": {map[string]longhorn.AttachmentTicketStatus{"": {Satisfied: true, Generation: 3}}, true},
		"not satisfied → no":                        {map[string]longhorn.AttachmentTicketStatus{"": {Satisfied: false, Generation: 3}}, false},
		"an answer to an earlier one → no":          {map[string]longhorn.AttachmentTicketStatus{"": {Satisfied: true, Generation: 2}}, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			have := ticket("", people, "node-1")
			have.Generation = 3
			va := withTickets(have)
			va.Status.AttachmentTicketStatuses = c.status
			assert.Equal(t, c.want, IsSatisfied(va, ""))
		})
	}
}
