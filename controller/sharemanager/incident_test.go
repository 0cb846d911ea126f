package sharemanager

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// serves is a share with a pod that serves and has not been asked yet.
func serves() *situation {
	return used().ticket(types.ShareTicketID("vol"), longhorn.AttacherTypeShareManager, "a").was("running").
		pod(corev1.PodRunning, is("True", time.Second), func(p *corev1.Pod) { p.Status.PodIP = "10.1.0.7" })
}

// after sets the previous pod, and how many minutes ago restarts were requested.
func (s *situation) after(pod string, requests ...time.Duration) *situation {
	s.Share.Status.ServedBy = pod
	for _, ago := range requests {
		s.Share.Status.RemountRequests = append(s.Share.Status.RemountRequests, types.Timestamp(now.Add(-ago)))
	}
	return s
}

func (s *situation) says(r types.ShareRecovery) *situation {
	s.Recovery = &r
	return s
}

// knows stores the incident of an earlier loss in the status.
func (s *situation) knows(incident string) *situation {
	s.Share.Status.IncidentID = incident
	return s
}

func (s *situation) clientState(status longhorn.ConditionStatus, reason string) *situation {
	s.Share.Status.Conditions = []longhorn.Condition{{Type: types.ConditionClientStateKept, Status: status, Reason: reason}}
	return s
}

func TestLearn(t *testing.T) {
	found := now.Add(-30 * time.Second)
	at := types.Timestamp(found)
	lost := types.ShareRecovery{Incident: "two", Reason: types.ReasonRecoveryDataMissing, Message: "it was not there", FoundAt: found}
	unusable := types.ShareRecovery{Incident: "two", Reason: types.ReasonRecoveryDataUnusable, Message: "it is full", FoundAt: found}
	ahead := lost
	ahead.FoundAt = now.Add(time.Hour)
	behind, undated := lost, lost
	behind.FoundAt, undated.FoundAt = now.Add(-48*time.Hour), time.Unix(0, 0)
	made := types.Timestamp(now.Add(-time.Hour)) // creation of the pod
	kept := types.ShareRecovery{}
	minutes := func(n int) time.Duration { return time.Duration(n) * time.Minute }
	for _, c := range []struct {
		name      string
		in        *situation
		servedBy  string
		incident  string
		reason    string // of the condition; "": there is none
		isKept    bool
		requested string
		requests  int // within the hour
		event     string
		after     time.Duration
	}{
		{name: "not asked → asked again", in: serves(), after: 5 * time.Second},
		{name: "not asked for long → asked again later", in: serves().with(func(in *Input) { is("True", 2*time.Minute)(in.Pod) }), after: 2 * time.Minute},
		{name: "not asked for very long → asked again within minutes", in: serves().with(func(in *Input) { is("True", time.Hour)(in.Pod) }), after: 5 * time.Minute},
		{name: "not asked after another pod → asked again", in: serves().after("pod-0"), servedBy: "pod-0", after: 5 * time.Second},
		{name: "the first server, data found → kept", in: serves().says(kept), servedBy: "pod", reason: types.ReasonRecoveryDataKept, isKept: true},
		{name: "the first server, no data → nobody had anything", in: serves().says(lost), servedBy: "pod", incident: "two", reason: types.ReasonNoClientsBefore, isKept: true},
		{name: "the first server, data cannot be kept → will be lost, no restart", in: serves().says(unusable), servedBy: "pod", incident: "two", reason: types.ReasonRecoveryDataUnusable},
		{name: "a later server, data found → kept", in: serves().after("pod-0").says(kept), servedBy: "pod", reason: types.ReasonRecoveryDataKept, isKept: true},
		{
			name: "a later server, data lost → restart of what started before that was found", in: serves().after("pod-0").says(lost),
			servedBy: "pod", incident: "two", reason: types.ReasonRecoveryDataMissing, requested: at, requests: 1,
			event: "The volume's clients have lost their open files and locks: it was not there (incident two). The manager has requested a restart of the pods that use the volume and started before " + at,
		},
		{
			name: "a later server, data cannot be kept → restart", in: serves().after("pod-0").says(unusable),
			servedBy: "pod", incident: "two", reason: types.ReasonRecoveryDataUnusable, requested: at, requests: 1,
			event: "The volume's clients have lost their open files and locks: it is full (incident two). The manager has requested a restart of the pods that use the volume and started before " + at,
		},
		{
			name: "old data found after a server that could keep none → restart", in: serves().after("pod-0").clientState("False", types.ReasonRecoveryDataUnusable).says(kept),
			servedBy: "pod", incident: "after-pod-0", reason: types.ReasonRecoveryDataUnusable, requested: types.Timestamp(now), requests: 1,
			event: "The volume's clients have lost their open files and locks: the previous server could not store its recovery data on the volume (incident after-pod-0). " +
				"The manager has requested a restart of the pods that use the volume and started before " + types.Timestamp(now),
		},
		{
			name: "found by a clock that is ahead → not of the future", in: serves().after("pod-0").says(ahead),
			servedBy: "pod", incident: "two", reason: types.ReasonRecoveryDataMissing, requested: types.Timestamp(now), requests: 1,
			event: "The volume's clients have lost their open files and locks: it was not there (incident two). The manager has requested a restart of the pods that use the volume and started before " + types.Timestamp(now),
		},
		{
			name: "found by a clock that is behind → not before the pod that found it was made", in: serves().after("pod-0").says(behind),
			servedBy: "pod", incident: "two", reason: types.ReasonRecoveryDataMissing, requested: made, requests: 1,
			event: "The volume's clients have lost their open files and locks: it was not there (incident two). The manager has requested a restart of the pods that use the volume and started before " + made,
		},
		{
			name: "found at no time that is said → the same", in: serves().after("pod-0").says(undated),
			servedBy: "pod", incident: "two", reason: types.ReasonRecoveryDataMissing, requested: made, requests: 1,
			event: "The volume's clients have lost their open files and locks: it was not there (incident two). The manager has requested a restart of the pods that use the volume and started before " + made,
		},
		{name: "a loss that is known → no second restart", in: serves().after("pod-0").knows("two").says(lost), servedBy: "pod", incident: "two"},
		{
			name: "the third within an hour → restart", in: serves().after("pod-0", minutes(50), minutes(20)).knows("one").says(lost),
			servedBy: "pod", incident: "two", reason: types.ReasonRecoveryDataMissing, requested: at, requests: 3,
			event: "The volume's clients have lost their open files and locks: it was not there (incident two). The manager has requested a restart of the pods that use the volume and started before " + at,
		},
		{
			name: "the fourth within an hour → told, no restart", in: serves().after("pod-0", minutes(50), minutes(20), minutes(5)).knows("one").says(lost),
			servedBy: "pod", incident: "two", reason: types.ReasonRecoveryDataMissing, requests: 3,
			event: "The volume's clients have lost their open files and locks: it was not there (incident two). " +
				"The pods that use the volume are not restarted again: restarts were requested 3 times within 1h0m0s. Restart the pods that report errors",
		},
		{
			name: "the fourth in more than an hour → restart", in: serves().after("pod-0", minutes(60), minutes(20), minutes(5)).knows("one").says(lost),
			servedBy: "pod", incident: "two", reason: types.ReasonRecoveryDataMissing, requested: at, requests: 3,
			event: "The volume's clients have lost their open files and locks: it was not there (incident two). The manager has requested a restart of the pods that use the volume and started before " + at,
		},
		{name: "the share does not run yet → not asked", in: serves().after("pod-0").was("starting").says(lost), servedBy: "pod-0", event: "The volume is served over NFS at nfs://10.0.0.9/vol, from node a"},
		{name: "the pod is not ready → not asked", in: serves().after("pod-0").says(lost).with(func(in *Input) { is("False", time.Second)(in.Pod) }), servedBy: "pod-0", after: 14 * time.Second},
		{name: "the node is down → not asked", in: serves().after("pod-0").says(lost).with(func(in *Input) { in.NodeDown = true }), servedBy: "pod-0", after: formerLimit, event: "The volume is not served over NFS: node a does not answer"},
		{name: "the pod is being deleted → not asked", in: serves().after("pod-0").says(lost).with(func(in *Input) { deleted(in.Pod) }), servedBy: "pod-0", after: formerLimit, event: "The volume is not served over NFS: the share's pod on node a is being deleted; another pod replaces it"},
		{name: "no workload → not asked", in: serves().after("pod-0").says(lost).unused(), servedBy: "pod-0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := plan(c.in.Input)
			assert.Equal(t, c.servedBy, p.Status.ServedBy)
			assert.Equal(t, c.incident, p.Status.IncidentID)
			condition := types.FindCondition(p.Status.Conditions, types.ConditionClientStateKept)
			assert.Equal(t, c.reason, condition.Reason)
			assert.Equal(t, c.isKept, condition.Status == longhorn.ConditionTrue)
			assert.Equal(t, c.requested, p.Status.RemountRequestedAt)
			assert.Len(t, p.Status.RemountRequests, c.requests)
			assert.Equal(t, c.after, p.After)
			var told []string
			for _, e := range p.Events {
				told = append(told, e.Message)
			}
			if c.event == "" {
				assert.Empty(t, told)
				return
			}
			assert.Equal(t, []string{c.event}, told)
		})
	}
}

// A later loss requests later restarts. A loss with an earlier time withdraws none of the earlier requests.
func TestTheTimeOfARequestOnlyAdvances(t *testing.T) {
	found := now.Add(-30 * time.Second)
	lost := types.ShareRecovery{Incident: "two", Reason: types.ReasonRecoveryDataMissing, FoundAt: found}
	for before, want := range map[time.Duration]time.Time{time.Minute: found, 10 * time.Second: now.Add(-10 * time.Second)} {
		s := serves().after("pod-0", before).knows("one").says(lost)
		s.Share.Status.RemountRequestedAt = types.Timestamp(now.Add(-before))
		assert.Equal(t, types.Timestamp(want), plan(s.Input).Status.RemountRequestedAt)
	}
}

func TestAShareThatStopsForgetsItsClients(t *testing.T) {
	in := used().unused().after("pod-0", time.Minute).knows("one").clientState("False", types.ReasonRecoveryDataUnusable)
	in.Share.Status.RemountRequestedAt = types.Timestamp(now.Add(-time.Minute))
	s := plan(in.Input).Status
	assert.Empty(t, s.ServedBy)
	assert.Empty(t, types.FindCondition(s.Conditions, types.ConditionClientStateKept).Reason)
	assert.Equal(t, "one", s.IncidentID, "it stays known")
	assert.Len(t, s.RemountRequests, 1, "they still count")
	assert.NotEmpty(t, s.RemountRequestedAt)
	assert.Equal(t, "RecoveryDataUnusable", in.Share.Status.Conditions[0].Reason, "what was given is not changed")
	waits := plan(in.pod(corev1.PodRunning, deleted).Input).Status
	assert.Equal(t, "pod-0", waits.ServedBy, "its pod may still serve")
}
