package copies

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/longhorn-lep/longhorn-manager/controller/volume/children"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// The engine may take minutes to notice that a member's machine is not running. Until then, the engine reports the
// member as good. Such a member must not cause the exclusion of a replica that serves.
func TestAReplicaThatServesStaysWhileTheOtherIsDown(t *testing.T) {
	for name, in := range map[string]Facts{
		"it is surplus":                           served(1, all(member, onNode("b"), away), all(member, onNode("c"))),
		"it is to leave its disk":                 served(1, all(member, onNode("b"), away), all(member, onNode("c"), evicted)),
		"it is to leave, the other's disk fails":  served(1, all(member, onNode("b"), broken("DiskError")), all(member, onNode("c"), evicted)),
		"it is to leave, the other was restarted": served(1, all(member, onNode("b"), replaced), all(member, onNode("c"), evicted)),
	} {
		t.Run(name, func(t *testing.T) {
			in.RebuildLimit = 5
			if p := plan(in); p.UpdateEngine != nil {
				assert.Contains(t, p.UpdateEngine.Spec.ReplicaAddressMap, "r2")
			}
		})
	}
}

// runRefused simulates a minute in which the disk of a node refuses each new replica, and counts the created replicas.
func runRefused(in Facts, node string) (made int) {
	for range 60 {
		p := plan(in)
		in.Now = in.Now.Add(time.Second)
		in.Volume.Status = p.Status
		for i, r := range in.Replicas {
			for _, u := range p.UpdateReplicas {
				if u.Name == r.Name {
					in.Replicas[i] = u
				}
			}
		}
		if p.UpdateEngine != nil {
			in.Engine.Spec = p.UpdateEngine.Spec
		}
		for _, r := range p.CreateReplicas {
			made++
			in.Names = []children.ReplicaNames{{Replica: fmt.Sprintf("n%d", made), Directory: fmt.Sprintf("d%d", made)}}
			if r.Spec.NodeID == node {
				r.Status.CurrentState = longhorn.InstanceStateError
				r.Status.Conditions = []longhorn.Condition{{Type: types.ConditionInstanceCreation, Status: longhorn.ConditionFalse, Reason: "DiskError"}}
			}
			in.Replicas = append(in.Replicas, r)
			in.Cluster.Replicas = append(in.Cluster.Replicas, placeOf(r))
		}
	}
	return made
}

func TestReplicasDoNotPileUpWhereNoneCanBeOpened(t *testing.T) {
	lost := onNodes(3, degradedFor(time.Hour, served(2, member, all(once(time.Hour), away))))
	lost.RebuildLimit = 5
	assert.Equal(t, 1, runRefused(lost, "c"), "in the place of a lost one")
	leaving := onNodes(3, evictedDisks(served(2, member, all(member, evicted))))
	leaving.RebuildLimit = 5
	assert.Equal(t, 1, runRefused(leaving, "c"), "in the place of one that leaves its disk")
}

func TestAReplicaThatAloneLeavesItsDiskIsNotMadeThereAgain(t *testing.T) {
	in := onNodes(2, served(2, member, all(member, evicted)))
	in.RebuildLimit = 5
	for _, r := range plan(in).CreateReplicas {
		assert.NotEqual(t, in.Replicas[1].Spec.DiskID, r.Spec.DiskID)
	}
}
