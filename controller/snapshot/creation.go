package snapshot

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/longhorn-lep/longhorn-manager/controller/line"
	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// why is a reason and a sentence for users; the zero value means that nothing prevents the attempt.
type why struct {
	reason, message string
	// isError: the Snapshot also shows the sentence as an error. It is not one if the snapshot only waits.
	isError bool
}

const (
	firstRetry = 5 * time.Second
	lastRetry  = 5 * time.Minute
)

// planCreation intends the point of the next Snapshot, if nothing prevents it. picked is that Snapshot, or the one of
// the attempt under way. waits says why the other Snapshots wait.
func planCreation(in Input, p *Plan) (picked *longhorn.Snapshot, waits why) {
	if giveUpStopped(in, p) {
		return nil, why{}
	}
	if point := line.Intended(p.Line); point != nil {
		return in.snapshot(point.Name), why{types.ReasonSnapshotWaits, fmt.Sprintf("snapshot %s of the volume is being taken", point.Name), false}
	}
	for _, s := range in.Snapshots {
		if !isRequested(p.Line, s) {
			continue
		}
		if left := retryIn(in, s); left > 0 {
			p.again(left)
			continue
		}
		if picked == nil {
			picked = s
		}
	}
	if picked == nil {
		return nil, why{}
	}
	if waits = prevented(in, p.Line); waits.reason != "" {
		p.again(lookAgain)
		if waits.reason == types.ReasonVolumeNotAttached {
			return picked, waits
		}
		return nil, waits
	}
	next, err := line.Intend(p.Line, picked.Name, in.Nonce)
	if err != nil {
		panic("BUG: the rules refuse a point although no other is intended: " + err.Error())
	}
	p.Line = next
	return picked, why{types.ReasonSnapshotWaits, fmt.Sprintf("snapshot %s of the volume is being taken", picked.Name), false}
}

// giveUpStopped gives up the point of an attempt if its engine has stopped. The next start would do the same, but the
// volume may stay detached. A group decides about its own points.
func giveUpStopped(in Input, p *Plan) bool {
	point := line.Intended(p.Line)
	if point == nil || point.Group != "" || !in.isStopped() {
		return false
	}
	next, err := line.Change(p.Line, line.Point(*point), layers.Line.GiveUp)
	if err != nil {
		panic("BUG: an intended point cannot be given up: " + err.Error())
	}
	p.Line = next
	return true
}

// isRequested reports whether a Snapshot requests a snapshot that was never taken.
func isRequested(l *longhorn.Line, s *longhorn.Snapshot) bool {
	return s.DeletionTimestamp == nil && s.Spec.CreateSnapshot && s.Status.CreationTime == "" && s.Name != types.VolumeHead &&
		line.Named(l, s.Name) == nil
}

// retryIn is the time until the next attempt after failed ones. It is counted from the stored time of the last attempt,
// so a new leader waits no longer than the old one.
func retryIn(in Input, s *longhorn.Snapshot) time.Duration {
	attempts := s.Status.Attempts
	if inProgress(s) { // its failure is recorded by this plan
		attempts++
	}
	if attempts == 0 {
		return 0
	}
	wait := lastRetry
	if attempts < 7 { // 5 s, 10 s, … 160 s
		wait = firstRetry << (attempts - 1)
	}
	return types.Until(s.Status.RequestedTime, wait, in.Now)
}

// prevented returns why no snapshot of the volume can be taken now. If the only reason is that the volume is not
// attached, it comes last: then a ticket helps.
func prevented(in Input, l *longhorn.Line) why {
	if in.Volume.DeletionTimestamp != nil {
		return why{types.ReasonVolumeNotFound, "the volume is being deleted", true}
	}
	if in.Engine == nil {
		return why{types.ReasonVolumeNotAttached, "the volume has no engine yet", false}
	}
	if w := overLimit(in, l); w.reason != "" {
		return w
	}
	if old := in.nodesWithoutSnapshots(); len(old) > 0 {
		return why{types.ReasonSnapshotsNotSupported, "the instance manager must be updated on " + strings.Join(old, ", "), true}
	}
	if in.isRunning() && in.Engine.Spec.DesireState == longhorn.DesireStateRunning {
		return why{}
	}
	return why{types.ReasonVolumeNotAttached, "the volume is not attached: " + string(cmp.Or(in.Volume.Status.State, longhorn.VolumeStateCreating)), false}
}

// overLimit applies the limits of the volume. Snapshots of users count for the volume's own limit. Layers also have
// deleted snapshots, until their space is free.
func overLimit(in Input, l *longhorn.Line) why {
	count, files := 0, 1
	if l != nil {
		files += len(l.Points)
		for _, p := range l.Points {
			if p.Name != "" && p.State != longhorn.PointStateDeleted {
				count++
			}
		}
	}
	for _, r := range in.Replicas {
		if r.Status.Layers != nil {
			files = max(files, 1+len(r.Status.Layers.Points))
		}
	}
	if count >= in.MaxCount {
		return why{types.ReasonTooManySnapshots, fmt.Sprintf("the volume has %d snapshots, and it may have %d: delete some", count, in.MaxCount), true}
	}
	switch err := layers.MayIntend(layers.Volume{Expanding: in.Volume.Status.ExpansionRequired, Files: files, Limit: layers.MostFiles}); {
	case errors.Is(err, layers.ErrManyFiles):
		return why{types.ReasonTooManyLayers, fmt.Sprintf("the volume has %d layers, and it may have %d: delete snapshots, and wait until their space is free", files, layers.MostFiles), true}
	case err != nil:
		return why{types.ReasonVolumeExpands, "the volume is being expanded", false}
	}
	return why{}
}

// nodesWithoutSnapshots names the nodes of the engine and of members with a data plane that cannot take snapshots.
func (in Input) nodesWithoutSnapshots() []string {
	var names []string
	add := func(node string) {
		if fact := in.Nodes[node]; node != "" && !fact.TakesSnapshots {
			names = append(names, strings.TrimSpace(fmt.Sprintf("node %s %s", node, fact.Version)))
		}
	}
	if in.isRunning() {
		add(in.Engine.Spec.NodeID)
	}
	for _, r := range in.Replicas {
		if in.isMember(r) {
			add(r.Spec.NodeID)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// isMember reports whether the recorded epoch lists a replica.
func (in Input) isMember(r *longhorn.Replica) bool {
	return in.Engine != nil && in.Engine.Status.Epoch != nil && slices.Contains(in.Engine.Status.Epoch.Members, r.Name)
}

// inProgress reports whether the status of a Snapshot says that its attempt is under way.
func inProgress(s *longhorn.Snapshot) bool {
	c := types.FindCondition(s.Status.Conditions, longhorn.SnapshotConditionReady)
	return s.Status.Number > 0 && c.Status == longhorn.ConditionFalse && c.Reason == types.ReasonSnapshotInProgress
}

// show adds the status of a Snapshot that is not being deleted.
//
//	its point     it was ready before, or    the status
//	              it requests no snapshot
//	ready         -                          ready
//	intended      -                          in progress
//	none          yes                        lost
//	none          no, was in progress        the attempt has failed
//	none          no                         waits, or shows why the last attempt failed
func show(in Input, p *Plan, s *longhorn.Snapshot, waits why) {
	next := *s.Status.DeepCopy()
	point := line.Named(in.lineRead(), s.Name)
	switch {
	case point != nil && point.State == longhorn.PointStateReady:
		showReady(in, p, s, *point)
		return
	case point != nil:
		if next.Number != point.Number || next.RequestedTime == "" {
			next.Number, next.RequestedTime = point.Number, types.Timestamp(in.Now)
		}
		next.Error = ""
		refuse(in, &next, types.ReasonSnapshotInProgress, "the members of the volume are storing the snapshot")
		next.Error = ""
		p.show(in, s, next)
		return
	case s.Status.CreationTime != "" || !s.Spec.CreateSnapshot:
		next.ReadyToUse = false
		refuse(in, &next, types.ReasonSnapshotLost, "the volume no longer has the snapshot")
		p.show(in, s, next, lostEvents(s, next)...)
		return
	case s.Name == types.VolumeHead:
		refuse(in, &next, types.ReasonSnapshotNameReserved, "the name "+types.VolumeHead+" stands for the changes since the newest snapshot")
	case inProgress(s):
		showFailure(in, p, s)
		return
	case s.Status.Attempts > 0 && retryIn(in, s) > 0: // the status shows why the last attempt failed
		return
	case waits.reason == "" || line.Named(p.Line, s.Name) != nil: // its turn comes next
		return
	default:
		refuse(in, &next, waits.reason, waits.message)
		if !waits.isError {
			next.Error = ""
			if s.Status.Attempts > 0 {
				next.Error = s.Status.Error // of the last attempt
			}
		}
	}
	p.show(in, s, next, failedEvents(s, next)...)
}

// lineRead is the line as it was read. A status follows the write of the line.
func (in Input) lineRead() *longhorn.Line {
	if in.Engine == nil {
		return nil
	}
	return in.Engine.Status.Line
}

func showReady(in Input, p *Plan, s *longhorn.Snapshot, point longhorn.LinePoint) {
	next := *s.Status.DeepCopy()
	info := p.Infos[s.Name]
	next.Parent, next.Children, next.UserCreated, next.MarkRemoved = info.Parent, info.Children, true, false
	next.CreationTime, next.ReadyToUse, next.Number = point.CreatedAt, true, point.Number
	next.Size, next.RestoreSize = sizeOf(info), point.SizeBytes
	if next.Labels == nil {
		next.Labels = s.Spec.Labels
	}
	next.Error, next.Attempts = "", 0
	next.Conditions, _ = types.SetCondition(next.Conditions, longhorn.Condition{
		Type: longhorn.SnapshotConditionReady, Status: longhorn.ConditionTrue, Reason: "Ready", Message: "all members of the volume have stored the snapshot",
	}, in.Now)
	var events []Event
	if s.Status.CreationTime == "" {
		events = append(events, Event{corev1.EventTypeNormal, types.EventCreate, "successfully provisioned the snapshot"})
	}
	if !s.Status.ReadyToUse {
		events = append(events, Event{corev1.EventTypeNormal, types.EventUpdate, "snapshot becomes ready to use"})
	}
	p.show(in, s, next, events...)
}

// showFailure records that an attempt has ended without a snapshot, with the reason that the engine's controller
// recorded.
func showFailure(in Input, p *Plan, s *longhorn.Snapshot) {
	next := *s.Status.DeepCopy()
	next.Attempts++
	reason, message := types.ReasonSnapshotInterrupted, "the engine stopped during the attempt"
	if f := in.Engine.Status.SnapshotFailure; f != nil && f.Number == s.Status.Number {
		reason, message = f.Reason, f.Message
	}
	refuse(in, &next, reason, message)
	p.again(retryIn(in, s))
	p.show(in, s, next, failedEvents(s, next)...)
}

// refuse sets the condition Ready to false, and the error.
func refuse(in Input, s *longhorn.SnapshotStatus, reason, message string) {
	s.Error = message
	s.Conditions, _ = types.SetCondition(s.Conditions, longhorn.Condition{
		Type: longhorn.SnapshotConditionReady, Status: longhorn.ConditionFalse, Reason: reason, Message: message,
	}, in.Now)
}

// failedEvents returns the Event about a new error.
func failedEvents(s *longhorn.Snapshot, next longhorn.SnapshotStatus) []Event {
	if next.Error == "" || next.Error == s.Status.Error && next.Attempts == s.Status.Attempts {
		return nil
	}
	return []Event{{corev1.EventTypeWarning, types.EventFailed, next.Error}}
}

func lostEvents(s *longhorn.Snapshot, next longhorn.SnapshotStatus) []Event {
	if s.Status.ReadyToUse {
		return []Event{{corev1.EventTypeWarning, types.EventUpdate, "snapshot becomes not ready to use: " + next.Error}}
	}
	return failedEvents(s, next)
}
