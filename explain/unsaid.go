package explain

import (
	"fmt"
	"slices"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// This file explains problems that no condition reports: an object that is missing, is being deleted, or has a state
// for which it has no condition. Without this file, such an object would seem to be in order.

// readiness reports that it is unknown whether an object is ready: its conditions lack Ready, or Ready is Unknown
// without a reason.
func readiness(o Object, list []longhorn.Condition, what string, next []Step) []Finding {
	c := types.FindCondition(list, types.ConditionReady)
	if len(list) == 0 || c.Reason != "" || c.Status == longhorn.ConditionTrue || c.Status == longhorn.ConditionFalse {
		return nil // the conditions report it, or there are no conditions, which another finding reports
	}
	return []Finding{{o, Warning, "ReadyUnknown", what, nonempty(c.Message), next}}
}

// unsaidOfVolume explains what neither the conditions of a volume nor the conditions of its other objects report.
// said are the findings from these conditions.
func unsaidOfVolume(s *Snapshot, v *longhorn.Volume, o Object, p place, said []Finding) []Finding {
	var found []Finding
	say := func(severity Severity, reason, what string, why []string, next ...Step) {
		found = append(found, Finding{o, severity, reason, p.fill(what), why, p.steps(next)})
	}
	has := func(condition string) bool {
		return !isWell(types.FindCondition(v.Status.Conditions, condition))
	}
	broken := slices.ContainsFunc(said, func(f Finding) bool { return f.Severity == Broken })
	switch e := s.engine(v.Name); {
	case e == nil && s.sees(ResourceEngines) && v.Status.CurrentNodeID != "":
		say(Broken, "EngineMissing", "volume {volume} is used on node "+v.Status.CurrentNodeID+", but its engine does not exist", nil, seeLeader)
	case e != nil && e.DeletionTimestamp != nil && v.DeletionTimestamp == nil:
		say(Warning, "EngineDeleted", "the engine of volume {volume} is being deleted, but the volume is not", finalizers(e.Finalizers), seeEngine)
	}
	switch {
	case v.Status.Robustness == longhorn.VolumeRobustnessFaulted && !has(types.ConditionFaulted) && !broken:
		say(Broken, "Faulted", "volume {volume} is faulted, and no condition gives the reason", proof(s, v), seeEngine, seeCopies)
	case v.Status.State == longhorn.VolumeStateAttaching && !has(types.ConditionAttaching) && !broken:
		say(Info, "Attaching", "volume {volume} is being attached", nil, waitForEngine)
	case v.Status.State == longhorn.VolumeStateDetaching && !has(types.ConditionDeviceInUse) && !broken:
		say(Info, "Detaching", "volume {volume} is being detached", nil, waitForEngine)
	}
	return append(found, unreachableCopies(s, v, o, p)...)
}

var waitForEngine = Step{"No action needed. If this lasts, see the engine's conditions and Events", seeEngine.Command}

var seeLeader = Step{"See whether a daemon is the leader, and its log", "kubectl -n {ns} get lease " + types.LeaderLease}

// unreachableCopies reports which healthy replicas of a detached volume could not be opened now. For a volume that is
// attached, or should be, the conditions report it.
func unreachableCopies(s *Snapshot, v *longhorn.Volume, o Object, p place) []Finding {
	e := s.engine(v.Name)
	if v.Status.State != longhorn.VolumeStateDetached || v.Spec.NodeID != "" || e == nil || !s.sees(ResourceNodes) || !s.sees(ResourceReplicas) {
		return nil
	}
	good := types.GoodCopies(e, s.replicasOf(v.Name))
	var why []string
	for _, r := range good {
		if !s.isReachable(r) {
			why = append(why, fmt.Sprintf("replica %s: %s", r.Name, whereabouts(s, r)))
		}
	}
	f := Finding{Object: o, Severity: Warning, Reason: types.ConditionCopiesUnreachable, Why: why}
	switch len(why) {
	case 0:
		return nil
	case len(good):
		f.Severity, f.What = Broken, p.fill("volume {volume} is detached and cannot be attached: no healthy replica can be opened")
	default:
		f.What = p.fill(fmt.Sprintf("volume {volume} is detached, and %d of its %d healthy replicas cannot be opened", len(why), len(good)))
	}
	f.Next = p.steps([]Step{{"Bring back the nodes and disks that the lines above name", "kubectl longhorn explain node {copynode}"}, seeCopies})
	return []Finding{f}
}

// unsaidOfManager explains an instance manager that does not run, if its conditions do not say why.
func unsaidOfManager(im *longhorn.InstanceManager, o Object, p place, said []Finding) []Finding {
	switch {
	case im.DeletionTimestamp != nil:
		return []Finding{{o, Warning, "Deleting", p.fill("the data plane of node {node} is being deleted"), finalizers(im.Finalizers), p.steps([]Step{seeDaemon})}}
	case len(said) == 0 && im.Status.CurrentState != longhorn.InstanceManagerStateRunning:
		state := string(im.Status.CurrentState)
		if state == "" {
			state = "unknown"
		}
		return []Finding{{o, Warning, "NotRunning", p.fill("the data plane of node {node} does not run: its state is " + state), nil, p.steps([]Step{describePod, seeDaemon})}}
	}
	return nil
}

// unsaidOfShare explains the share of a shared volume that pods request, if its conditions do not say why it does not
// serve.
func unsaidOfShare(s *Snapshot, v *longhorn.Volume, said []Finding) []Finding {
	sm, va := named(s.ShareManagers, v.Name), named(s.Attachments, v.Name)
	o, p := Object{Kind: KindShareManager, Name: v.Name}, s.place("pod", types.ShareManagerPodName(v.Name))
	p.setVolume(s, v.Name)
	see := []Step{{"See the conditions and Events of its share manager", "kubectl -n {ns} describe lhsm {volume}"}}
	wanted := va != nil && wantedByPods(va)
	switch {
	case !types.IsShared(v) || !wanted || !s.sees(ResourceShareManagers) || len(said) > 0:
		return nil
	case sm == nil:
		return []Finding{{o, Broken, "ShareMissing", p.fill("volume {volume} is not shared: it has no share manager"), nil, p.steps([]Step{seeLeader})}}
	case sm.DeletionTimestamp != nil:
		return []Finding{{o, Warning, "Deleting", p.fill("the share of volume {volume} is being deleted"), finalizers(sm.Finalizers), p.steps(see)}}
	case sm.Status.State != longhorn.ShareManagerStateRunning:
		return []Finding{{o, Warning, "NotRunning", p.fill("volume {volume} is not shared: the state of its share is " + string(sm.Status.State)), nil, p.steps(see)}}
	}
	return nil
}

// wantedByPods reports whether the CSI driver requests a volume.
func wantedByPods(va *longhorn.VolumeAttachment) bool {
	for _, t := range va.Spec.AttachmentTickets {
		if t.Type == longhorn.AttacherTypeCSI {
			return true
		}
	}
	return false
}
