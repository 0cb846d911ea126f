package sharemanager

import (
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// lostClients are the NFS clients of nodes that cannot speak to the former server of a volume any more, so that the next one need not wait for them.
//
//	the node                                              its client is
//	----------------------------------------------------  ---------------------------------------------------------------
//	answers neither the leader nor a witness              lost
//	does not answer the leader, and there is no witness   not lost: it may be the leader that is cut off
//	is not ready, as Kubernetes says                      not lost: its kubelet may have stopped, and its pods still run
//	has the identifier of another node                    not lost: the other node may have the record
//	reports no identifier                                 not lost: its record cannot be told from others
//
// The list is about the server of the engine whose epoch is recorded now. A leader that was deposed may create a pod late; that pod's list is then
// about an engine that is not the last one, and does not count (package share).
func lostClients(e *longhorn.Engine, nodes []*longhorn.Node) types.LostClients {
	if e.Status.Epoch == nil {
		return types.LostClients{}
	}
	holders := map[string]int{}
	for _, n := range nodes {
		holders[n.Status.NFSClientID]++
	}
	lost := types.LostClients{After: e.Status.Epoch.Generation}
	for _, n := range nodes {
		id := n.Status.NFSClientID
		isSilent := types.IsNodeDown(n) && n.Status.Silence != nil && n.Status.Silence.Witness != ""
		if isSilent && types.IsNFSClientID(id) && holders[id] == 1 {
			lost.IDs = append(lost.IDs, id)
		}
	}
	return lost
}
