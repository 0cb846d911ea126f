package attachment

import (
	"testing"

	"github.com/stretchr/testify/assert"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestTheAnswerNamesAVolumeByItsClaim(t *testing.T) {
	v := volume("a", longhorn.VolumeStateAttached, "a")
	v.Status.KubernetesStatus = longhorn.KubernetesStatus{PVStatus: "Bound", Namespace: "default", PVCName: "data"}
	c := ticketCondition(Input{Volume: v}, longhorn.AttachmentTicket{NodeID: "b"})
	assert.Equal(t, types.ReasonAttachedElsewhere, c.Reason)
	assert.Equal(t, "volume default/data (vol) is attached to node a; it can be attached to node b when it is detached from there", c.Message)
	c = ticketCondition(Input{Volume: v, Nodes: []string{"a"}}, longhorn.AttachmentTicket{NodeID: "b"})
	assert.Equal(t, `volume "default/data (vol)" cannot be attached to node "b": its dataLocality is strict-local, and its data is on node "a"`, c.Message)
}
