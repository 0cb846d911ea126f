package volume

import (
	"testing"

	"github.com/stretchr/testify/assert"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

func TestTheActualSizeIsThatOfTheLargestGoodCopy(t *testing.T) {
	replica := func(allocated int64, failedAt string) *longhorn.Replica {
		r := &longhorn.Replica{}
		r.Spec.FailedAt, r.Status.AllocatedBytes = failedAt, allocated
		return r
	}
	assert.Zero(t, actualSize(nil))
	assert.EqualValues(t, 7, actualSize([]*longhorn.Replica{replica(5, ""), replica(7, ""), replica(6, "")}))
	assert.EqualValues(t, 5, actualSize([]*longhorn.Replica{replica(5, ""), replica(7, "2030-01-02T03:04:05Z")}), "one that failed counts no more")

	in := served(3, member, member, member)
	in.Replicas[1].Status.AllocatedBytes = 9 << 20
	assert.EqualValues(t, 9<<20, plan(in).Status.ActualSize)
}
