package replica

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

var (
	goodDisk   = Disk{Known: true, Ready: true, Path: "/data"}
	brokenDisk = Disk{Known: true, Message: "disk d(/data) is not ready"}
)

type option func(*longhorn.Replica)

func replica(options ...option) *longhorn.Replica {
	r := &longhorn.Replica{}
	r.Name = "vol-r-1"
	r.Spec.NodeID, r.Spec.DiskID, r.Spec.DataDirectoryName = "n", "uuid", "vol-1"
	r.Spec.DesireState = longhorn.DesireStateStopped
	for _, o := range options {
		o(r)
	}
	return r
}

func wanted(r *longhorn.Replica)  { r.Spec.DesireState = longhorn.DesireStateRunning }
func created(r *longhorn.Replica) { r.Status.DirectoryCreated = true }
func deleted(r *longhorn.Replica) { r.DeletionTimestamp = &metav1.Time{Time: now} }
func placeless(r *longhorn.Replica) {
	r.Spec.NodeID, r.Spec.DiskID, r.Spec.DataDirectoryName = "", "", ""
}

func fence(generation int64) option {
	return func(r *longhorn.Replica) { r.Spec.FenceGeneration = generation }
}

func holds(generation int64) option {
	return func(r *longhorn.Replica) { r.Status.Generation = generation }
}

func failedAt(at time.Time, reason string) option {
	return func(r *longhorn.Replica) {
		r.Status.CurrentState = longhorn.InstanceStateError
		r.Status.Conditions = []longhorn.Condition{{
			Type: types.ConditionInstanceCreation, Status: longhorn.ConditionFalse, Reason: reason, Message: "m", LastTransitionTime: types.Timestamp(at),
		}}
	}
}

func TestPlan(t *testing.T) {
	absent, silent := Observed{Phase: types.PhaseAbsent}, Observed{Phase: types.PhaseUnknown}
	torn := Observed{Phase: types.PhaseError, Reason: "MetadataTorn", Message: "torn"}
	unmounted := Observed{Phase: types.PhaseError, Reason: "DiskUnmounted", Message: "its disk /data was unmounted"}
	erased := Observed{Phase: types.PhaseError, Reason: "DataDeleted", Message: "its data in /data/replicas/vol-1 was deleted"}
	missing := Observed{Phase: types.PhaseError, Reason: "DiskMissing", Message: "no UUID file"}
	for _, tc := range []struct {
		name       string
		replica    *longhorn.Replica
		observed   Observed
		disk       Disk
		wantAction Action
		wantState  longhorn.InstanceState
		wantAfter  time.Duration
		wantReason string
	}{
		{name: "new and not wanted → stopped, nothing made", replica: replica(), observed: absent, disk: goodDisk, wantState: longhorn.InstanceStateStopped},
		{name: "wanted, never made → made", replica: replica(wanted), observed: absent, disk: goodDisk, wantAction: ActionCreate, wantState: longhorn.InstanceStateStarting},
		{
			name: "wanted, made before → opened, never made again", replica: replica(wanted, created), observed: absent, disk: goodDisk,
			wantAction: ActionStart, wantState: longhorn.InstanceStateStarting,
		},
		{
			name: "wanted but its disk is not ready → error with the disk's reason, nothing made", replica: replica(wanted), observed: absent, disk: brokenDisk,
			wantState: longhorn.InstanceStateError, wantAfter: 30 * time.Second, wantReason: types.ReasonDiskNotReady,
		},
		{
			name: "its disk came back → opened at once", replica: replica(wanted, created, failedAt(now, types.ReasonDiskNotReady)), observed: absent, disk: goodDisk,
			wantAction: ActionStart, wantState: longhorn.InstanceStateStarting, wantReason: types.ReasonDiskNotReady,
		},
		{
			name: "could not be opened → error with the reason", replica: replica(wanted, created), observed: torn, disk: goodDisk,
			wantState: longhorn.InstanceStateError, wantAfter: 30 * time.Second, wantReason: "MetadataTorn",
		},
		{
			name: "could not be opened a moment ago → not tried again yet", replica: replica(wanted, created, failedAt(now.Add(-10*time.Second), "MetadataTorn")), observed: torn, disk: goodDisk,
			wantState: longhorn.InstanceStateError, wantAfter: 20 * time.Second, wantReason: "MetadataTorn",
		},
		{
			name: "could not be opened long ago → tried again, an error still", replica: replica(wanted, created, failedAt(now.Add(-time.Minute), "MetadataTorn")), observed: torn, disk: goodDisk,
			wantAction: ActionStart, wantState: longhorn.InstanceStateError, wantAfter: 30 * time.Second, wantReason: "MetadataTorn",
		},
		{
			name: "its disk was unmounted, the node has not seen it yet → an error that says so", replica: replica(wanted, created), observed: unmounted, disk: goodDisk,
			wantState: longhorn.InstanceStateError, wantAfter: 2 * time.Second, wantReason: "DiskUnmounted",
		},
		{
			name: "its disk was unmounted and is not ready → it still says how it was lost", replica: replica(wanted, created, failedAt(now, "DiskUnmounted")), observed: unmounted, disk: brokenDisk,
			wantState: longhorn.InstanceStateError, wantAfter: 30 * time.Second, wantReason: "DiskUnmounted",
		},
		{
			name: "its data was deleted → an error that says so", replica: replica(wanted, created), observed: erased, disk: goodDisk,
			wantState: longhorn.InstanceStateError, wantAfter: 30 * time.Second, wantReason: "DataDeleted",
		},
		{
			name: "its data was deleted with all of the disk → it still says so", replica: replica(wanted, created, failedAt(now, "DataDeleted")), observed: erased, disk: brokenDisk,
			wantState: longhorn.InstanceStateError, wantAfter: 30 * time.Second, wantReason: "DataDeleted",
		},
		{
			name: "its data was deleted a while ago → opened if it is back, never made again", replica: replica(wanted, created, failedAt(now.Add(-time.Minute), "DataDeleted")), observed: erased, disk: goodDisk,
			wantAction: ActionStart, wantState: longhorn.InstanceStateError, wantAfter: 30 * time.Second, wantReason: "DataDeleted",
		},
		{
			name: "its disk was unmounted and is back after a while → opened", replica: replica(wanted, created, failedAt(now.Add(-2*time.Second), "DiskUnmounted")), observed: unmounted, disk: goodDisk,
			wantAction: ActionStart, wantState: longhorn.InstanceStateError, wantAfter: 2 * time.Second, wantReason: "DiskUnmounted",
		},
		{
			name: "could not be opened for its disk is away → what the node says of the disk", replica: replica(wanted, created), observed: missing, disk: brokenDisk,
			wantState: longhorn.InstanceStateError, wantAfter: 30 * time.Second, wantReason: types.ReasonDiskNotReady,
		},
		{name: "instance manager silent → nothing is done or said", replica: replica(wanted), observed: silent, disk: goodDisk},
		{name: "instance manager silent, deleted → the data and the finalizer stay", replica: replica(created, deleted), observed: silent, disk: goodDisk},
		{name: "not wanted but open → stopped", replica: replica(created), observed: Observed{Phase: types.PhaseRunning}, disk: goodDisk, wantAction: ActionStop, wantState: longhorn.InstanceStateStopping},
		{name: "deleted while open → stopped first", replica: replica(created, deleted, wanted), observed: Observed{Phase: types.PhaseRunning}, disk: goodDisk, wantAction: ActionStop, wantState: longhorn.InstanceStateStopping},
		{name: "deleted and closed → removed", replica: replica(created, deleted), observed: absent, disk: goodDisk, wantAction: ActionRemove, wantState: longhorn.InstanceStateStopped},
		{
			name: "deleted, made but not recorded before a crash → removed all the same", replica: replica(deleted), observed: absent, disk: goodDisk,
			wantAction: ActionRemove, wantState: longhorn.InstanceStateStopped,
		},
		{
			name: "deleted while its disk is away → kept until the disk is back", replica: replica(created, deleted), observed: absent, disk: brokenDisk,
			wantState: longhorn.InstanceStateStopped, wantReason: types.ReasonDiskNotReady,
		},
		{
			name: "deleted while the node does not know its disk → kept", replica: replica(created, deleted), observed: absent,
			wantState: longhorn.InstanceStateStopped, wantReason: types.ReasonDiskNotFound,
		},
		{
			name: "wanted but the node does not know its disk → an error that says so, tried seldom", replica: replica(wanted, created), observed: absent,
			wantState: longhorn.InstanceStateError, wantAfter: 30 * time.Second, wantReason: types.ReasonDiskNotFound,
		},
		{
			name: "the node has got to know its disk → opened at once", replica: replica(wanted, created, failedAt(now, types.ReasonDiskNotFound)), observed: absent, disk: goodDisk,
			wantAction: ActionStart, wantState: longhorn.InstanceStateStarting, wantReason: types.ReasonDiskNotFound,
		},
		{
			name: "its node was gone and is back with the disk → opened at once", replica: replica(wanted, created, failedAt(now, types.ReasonNodeGone)), observed: absent, disk: goodDisk,
			wantAction: ActionStart, wantState: longhorn.InstanceStateStarting, wantReason: types.ReasonNodeGone,
		},
		{name: "its node was gone and is back, not wanted → stopped, and that is over", replica: replica(created, failedAt(now, types.ReasonNodeGone)), observed: absent, disk: goodDisk, wantState: longhorn.InstanceStateStopped},
		{name: "to be fenced and open → stopped", replica: replica(created, fence(7)), observed: Observed{Phase: types.PhaseRunning, Generation: 6}, disk: goodDisk, wantAction: ActionStop, wantState: longhorn.InstanceStateStopping},
		{name: "to be fenced and closed → opened for it", replica: replica(created, fence(7)), observed: absent, disk: goodDisk, wantAction: ActionStart, wantState: longhorn.InstanceStateStarting},
		{name: "fenced and closed → stopped", replica: replica(created, fence(7), holds(7)), observed: absent, disk: goodDisk, wantState: longhorn.InstanceStateStopped},
		{name: "to be fenced, never made → stopped, nothing is made", replica: replica(fence(7)), observed: absent, disk: goodDisk, wantState: longhorn.InstanceStateStopped},
		{name: "to be fenced, deleted → removed without", replica: replica(created, fence(7), deleted), observed: absent, disk: goodDisk, wantAction: ActionRemove, wantState: longhorn.InstanceStateStopped},
		{
			name: "to be fenced, its disk is away → an error, not stopped", replica: replica(created, fence(7)), observed: absent, disk: brokenDisk,
			wantState: longhorn.InstanceStateError, wantAfter: 30 * time.Second, wantReason: types.ReasonDiskNotReady,
		},
		{
			name: "to be fenced, cannot be opened → an error", replica: replica(created, fence(7)), observed: torn, disk: goodDisk,
			wantState: longhorn.InstanceStateError, wantAfter: 30 * time.Second, wantReason: "MetadataTorn",
		},
		{name: "deleted without ever having a place → forgotten", replica: replica(placeless, deleted), observed: silent, wantAction: ActionDropFinalizer},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := plan(Input{Replica: tc.replica, Observed: tc.observed, Disk: tc.disk, Owner: "n", Now: now})
			c := types.FindCondition(p.Status.Conditions, types.ConditionInstanceCreation)
			assert.Equal(t, tc.wantAction, p.Action)
			assert.Equal(t, tc.wantState, p.Status.CurrentState)
			assert.Equal(t, tc.wantAfter, p.After)
			assert.Equal(t, tc.wantReason, c.Reason)
		})
	}
}

// Only the process remembers a failed attempt that changes nothing.
func TestTheNextAttemptIsCountedFromTheLast(t *testing.T) {
	for _, tc := range []struct {
		name   string
		reason string
		failed time.Duration // ago
		tried  time.Duration // ago; 0: never
		want   time.Duration // 0: now
	}{
		{"failed a moment ago, never tried since", "MetadataTorn", 10 * time.Second, 0, 20 * time.Second},
		{"failed long ago, never tried since → at once", "MetadataTorn", time.Hour, 0, 0},
		{"failed long ago, tried a moment ago", "MetadataTorn", time.Hour, 10 * time.Second, 20 * time.Second},
		{"failed long ago, tried long ago → at once", "MetadataTorn", time.Hour, 30 * time.Second, 0},
		{"tried before it failed, as by the attempt that failed", "MetadataTorn", 10 * time.Second, 11 * time.Second, 20 * time.Second},
		{"the disk went a moment ago → soon", "DiskMissing", time.Second, 0, time.Second},
		{"the disk went 10 s ago, tried 6 s after → the wait doubles", "DiskMissing", 10 * time.Second, 4 * time.Second, 2 * time.Second},
		{"the disk went long ago, tried a moment ago → like any other", "DiskMissing", time.Hour, 10 * time.Second, 20 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := Input{
				Replica:  replica(wanted, created, failedAt(now.Add(-tc.failed), tc.reason)),
				Observed: Observed{Phase: types.PhaseError, Reason: tc.reason, Message: "m"}, Disk: goodDisk, Owner: "n", Now: now,
			}
			if tc.tried > 0 {
				in.Tried.at = now.Add(-tc.tried)
			}
			p := plan(in)
			if tc.want == 0 {
				assert.Equal(t, ActionStart, p.Action)
			}
			if tc.want > 0 {
				assert.Empty(t, p.Action)
				assert.Equal(t, tc.want, p.After)
			}
			assert.Equal(t, longhorn.InstanceStateError, p.Status.CurrentState)
		})
	}
}

func TestRunningReplicaShowsWhereItIsServed(t *testing.T) {
	im := &longhorn.InstanceManager{}
	im.Name = "instance-manager-x"
	unknown := Input{Replica: replica(wanted, created), Observed: Observed{Phase: types.PhaseRunning, Process: "p"}, Disk: goodDisk, Owner: "n", Now: now}
	s := plan(unknown).Status
	assert.NotEqual(t, longhorn.InstanceStateRunning, s.CurrentState, "said to be running though there is no instance manager")
	in := Input{Replica: replica(wanted, created), Observed: Observed{Phase: types.PhaseRunning, Process: "p"}, Disk: goodDisk, Manager: im, Owner: "n", Now: now}

	s = plan(in).Status
	assert.NotEqual(t, longhorn.InstanceStateRunning, s.CurrentState, "said to be running though its address is not known")
	im.Status.IP, im.Status.Port = "10.0.0.7", 8500
	s = plan(in).Status
	assert.Equal(t, longhorn.InstanceStateRunning, s.CurrentState)
	assert.Equal(t, "10.0.0.7", s.IP)
	assert.Equal(t, 8500, s.Port)
	assert.Equal(t, "p", s.UUID)
	assert.Equal(t, im.Name, s.InstanceManagerName)
	assert.Empty(t, s.SecureUUID, "said to be served over TLS, which the process has not said")

	in.Observed.Secure = true
	in.Replica.Status = plan(in).Status
	assert.Equal(t, "p", in.Replica.Status.SecureUUID)
	in.Observed.Secure, in.Observed.Process = false, "of an earlier release"
	assert.Empty(t, plan(in).Status.SecureUUID, "what an earlier process said")
	in.Observed = Observed{Phase: types.PhaseAbsent}
	assert.Empty(t, plan(in).Status.SecureUUID, "what a process said that is gone")
}

func TestRefusedDirectoryBecomesAnError(t *testing.T) {
	in := Input{Replica: replica(wanted), Now: now}
	p := planRefused(in, in.Replica.Status, &types.Refusal{Reason: "NotAReplica", Message: "/data/replicas/vol-1 holds no replica"})
	c := types.FindCondition(p.Status.Conditions, types.ConditionInstanceCreation)
	assert.Equal(t, longhorn.InstanceStateError, p.Status.CurrentState)
	assert.Equal(t, "NotAReplica", c.Reason)
	assert.Contains(t, c.Message, "/data/replicas/vol-1")
}

func TestHowSoonAReplicaIsTriedAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		age    time.Duration
		want   time.Duration
	}{
		"its disk is not there, just now":         {types.ReasonDiskMissing, 0, 2 * time.Second},
		"another disk is at the path, just now":   {types.ReasonDiskMismatch, 0, 2 * time.Second},
		"its disk was unmounted, just now":        {types.ReasonDiskUnmounted, 0, 2 * time.Second},
		"its disk was replaced, just now":         {types.ReasonDiskReplaced, 0, 2 * time.Second},
		"its disk is not there for 10 s":          {types.ReasonDiskMissing, 10 * time.Second, 10 * time.Second},
		"its disk is not there for an hour":       {types.ReasonDiskMissing, time.Hour, 30 * time.Second},
		"a process that ends has it, just now":    {types.ReasonLocked, 0, 2 * time.Second},
		"a process has it that does not end":      {types.ReasonLocked, time.Hour, 30 * time.Second},
		"it was refused for what is in its files": {"DataCorrupt", 0, 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tc.want, retryDelay(tc.reason, tc.age))
		})
	}
}

// Calls to a disk that hangs block. Only actions with such calls must take a turn.
func TestWhichActionsAskTheDisk(t *testing.T) {
	for action, want := range map[Action]bool{
		ActionCreate: true, ActionStart: true, ActionStop: true, ActionRemove: true, ActionDropFinalizer: false, ActionNone: false,
	} {
		assert.Equal(t, want, action.asksDisk(), "%q: %t", action, !want)
	}
}

func TestADiskIsFoundByItsUUID(t *testing.T) {
	known := build.ReadyNode("n", "uuid")
	unread := build.ReadyNode("n", "")
	for name, tc := range map[string]struct {
		node *longhorn.Node
		uuid string
		want bool
	}{
		"the node has it":      {known, "uuid", true},
		"the node has another": {known, "other", false},
		"the replica has no disk, and the node one whose UUID is not known": {unread, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			got := diskOf(tc.node, tc.uuid)
			assert.Equal(t, tc.want, got.Known)
		})
	}
}
