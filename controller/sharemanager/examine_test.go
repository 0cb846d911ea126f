package sharemanager

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clienttesting "k8s.io/client-go/testing"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// questions are the leader's questions, with their results.
type questions struct {
	silent map[string]time.Time
	serves bool
	err    error
	asked  []string
	others []string // addresses that were tried
	reach  bool
}

func (q *questions) SilentSince(address string) time.Time { return q.silent[address] }
func (q *questions) OnSilence(func(string))               {}

func (q *questions) serving(ctx context.Context, address string) (bool, error) {
	q.asked = append(q.asked, address)
	return q.serves, q.err
}

func (q *questions) answers(_ context.Context, addresses []string) bool {
	q.others = addresses
	return q.reach
}

func TestASharesPodThatIsSilentIsAskedAndReplaced(t *testing.T) {
	for name, tc := range map[string]struct {
		serves, reach bool
		err           error
		grace         []int64 // of the pod's deletions
	}{
		"it answers → stays":                                 {serves: true},
		"silence, the leader reaches the node's pods → ends": {err: errors.New("none"), reach: true, grace: []int64{6}},
		"silence, it may be the leader's → stays":            {err: errors.New("none")},
	} {
		t.Run(name, func(t *testing.T) {
			manager := &longhorn.InstanceManager{
				ObjectMeta: metav1.ObjectMeta{Namespace: types.Namespace, Name: types.InstanceManagerName("a")},
				Spec:       longhorn.InstanceManagerSpec{NodeID: "a"}, Status: longhorn.InstanceManagerStatus{IP: "10.1.0.9", Port: 9502},
			}
			h, c := start(t, manager)
			q := &questions{silent: map[string]time.Time{}, serves: tc.serves, reach: tc.reach, err: tc.err}
			c.Silences, c.Serving, c.Answers = q, q.serving, q.answers
			syncs(t, h, c, nil)
			h.CatchUp()
			svc, err := c.Services.GetRO("vol")
			require.NoError(t, err)
			svc = svc.DeepCopy()
			svc.Spec.ClusterIP = "10.0.0.9"
			h.Overwrite(svc)
			change(t, h, c, func(p *corev1.Pod) {
				p.Spec.NodeName, p.Status.Phase, p.Status.PodIP = "a", corev1.PodRunning, "10.1.0.7"
				is("True", 0)(p)
			})
			syncs(t, h, c, nil)
			h.CatchUp()
			syncs(t, h, c, nil)
			h.CatchUp()
			assert.Empty(t, q.asked, "a pod that answers is not asked")

			q.silent["10.1.0.7:9600"] = c.Clock.Now()
			h.Clock.Step(unreadyLimit - time.Second)
			syncs(t, h, c, nil)
			assert.Empty(t, q.asked, "not yet")
			h.Writes()
			h.Clock.Step(time.Second)
			syncs(t, h, c, nil)
			assert.Equal(t, []string{"10.1.0.7:9600"}, q.asked)
			assert.Equal(t, []string{"10.1.0.9:9502"}, q.others)
			var grace []int64
			for _, a := range h.Kube.Actions() {
				if d, ok := a.(clienttesting.DeleteActionImpl); ok && a.GetResource().Resource == "pods" {
					grace = append(grace, *d.DeleteOptions.GracePeriodSeconds)
				}
			}
			assert.Equal(t, tc.grace, grace)
			h.CatchUp()
			share, err := c.Shares.Get("vol")
			require.NoError(t, err)
			want := longhorn.ShareManagerStateRunning
			if tc.grace != nil {
				want = longhorn.ShareManagerStateError
			}
			assert.Equal(t, want, share.Status.State)
		})
	}
}

// heardOf are the Silences of a leader that finds a share silent.
type heardOf struct {
	noSilences
	tell func(volume string)
}

func (h *heardOf) OnSilence(f func(string)) { h.tell = f }

// TestASilentShareIsLookedAt: nothing else would wake the controller, because the kubelet reports no change.
func TestASilentShareIsLookedAt(t *testing.T) {
	_, c := start(t)
	silences := &heardOf{}
	d := c.Deps
	d.Silences = silences
	looked := make(chan string, 1)
	d.Shares = lookedAt{d.Shares, looked}
	another, err := New(d)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- another.Run(ctx) }()
	silences.tell("silent")
	assert.Equal(t, "silent", <-looked)
	cancel()
	require.NoError(t, <-ended)
}

// lookedAt reports which share the controller reads.
type lookedAt struct {
	ShareStore
	looked chan string
}

func (l lookedAt) Get(name string) (*longhorn.ShareManager, error) {
	select {
	case l.looked <- name:
	default:
	}
	return l.ShareStore.Get(name)
}
