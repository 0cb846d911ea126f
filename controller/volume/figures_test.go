package volume

import (
	"testing"

	"github.com/stretchr/testify/assert"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// The space on disks and the numbers of processes change all the time. An Event for each change would hide the other
// Events.
func TestAnEventIsNotRepeatedForOtherFigures(t *testing.T) {
	const no, yes = longhorn.ConditionFalse, longhorn.ConditionTrue
	for _, tc := range []struct {
		name         string
		kind         string
		status       longhorn.ConditionStatus
		reason       string
		was, is      string
		reasonBefore string
		events       int
	}{
		{name: "Scheduled, the same → none", kind: types.ConditionScheduled, status: no, reason: "R", was: "m", is: "m"},
		{name: "Scheduled, other sizes → none", kind: types.ConditionScheduled, status: no, reason: "R", was: "storageAvailable 7.45 GiB (4 disks)", is: "storageAvailable 7.12 GiB (3 disks)"},
		{name: "Scheduled, another clause → one", kind: types.ConditionScheduled, status: no, reason: "R", was: "insufficient storage (4 disks)", is: "tags not fulfilled (4 disks)", events: 1},
		{name: "Scheduled, another reason in the same words → one", kind: types.ConditionScheduled, status: no, reason: "R", reasonBefore: "Q", was: "m", is: "m", events: 1},
		{name: "DeviceInUse, another process → none", kind: types.ConditionDeviceInUse, status: yes, reason: "R", was: "used by process 17 of pod p", is: "used by process 23 of pod p"},
		{name: "DeviceInUse, another pod → one", kind: types.ConditionDeviceInUse, status: yes, reason: "R", was: "used by process 17 of pod p", is: "used by process 17 of pod q", events: 1},
		{name: "CopiesMissing, another replica → one", kind: types.ConditionCopiesMissing, status: yes, reason: "R", was: "replica vol-r-1 failed", is: "replica vol-r-2 failed", events: 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := tc.reason
			if tc.reasonBefore != "" {
				before = tc.reasonBefore
			}
			in := served(2, member, member)
			next := in.Volume.Status.DeepCopy()
			in.Volume.Status.Conditions = []longhorn.Condition{{Type: tc.kind, Status: tc.status, Reason: before, Message: tc.was}}
			next.Conditions = []longhorn.Condition{{Type: tc.kind, Status: tc.status, Reason: tc.reason, Message: tc.is}}
			assert.Len(t, transitions(in, next), tc.events)
		})
	}
}
