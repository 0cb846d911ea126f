package manager

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"

	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// hastyClock lets every timer fire as soon as it is set, and records the delay.
type hastyClock struct {
	*testclock.FakeClock
	delays []time.Duration
	during func() // called while a timer runs; nil: nothing
}

func (c *hastyClock) NewTimer(d time.Duration) clock.Timer {
	c.delays = append(c.delays, d)
	if c.during != nil {
		c.during()
	}
	timer := c.FakeClock.NewTimer(d)
	c.Step(d)
	return timer
}

type bench struct {
	*testutil.Harness
	*Manager
	hasty *hastyClock
}

func newBench(t *testing.T, objs ...runtime.Object) *bench {
	t.Helper()
	h := testutil.New(t, objs...)
	c := &hastyClock{FakeClock: h.Clock}
	return &bench{Harness: h, Manager: New(DepsOf(h.Datastore(datastore.Options{}), datastore.NewWorkloads(h.Kube), c, h.Log)), hasty: c}
}

// threeNodes returns ready nodes, with a disk of 100 GiB each.
func threeNodes() []runtime.Object {
	return []runtime.Object{
		build.ReadyNode("node-1", "uuid-1", func(n *longhorn.Node) { n.Spec.Tags = []string{"fast"} }),
		build.ReadyNode("node-2", "uuid-2", build.WithDisk("disk-1", "/var/lib/longhorn", func(d *longhorn.DiskSpec) { d.Tags = []string{"ssd"} })),
		build.ReadyNode("node-3", "uuid-3"),
		build.RunningInstanceManager("node-1", "10.0.0.1", "im-1"),
		build.RunningInstanceManager("node-2", "10.0.0.2", "im-2"),
		build.RunningInstanceManager("node-3", "10.0.0.3", "im-3"),
	}
}

// detachedVolume returns a volume that can be attached.
func detachedVolume(name string, changes ...func(*longhorn.Volume)) *longhorn.Volume {
	v := build.Volume(name)
	v.Status.State = longhorn.VolumeStateDetached
	v.Status.Conditions = []longhorn.Condition{condition(types.ConditionScheduled, longhorn.ConditionTrue, "", "")}
	for _, change := range changes {
		change(v)
	}
	return v
}

// owned makes the volume of build.Volume the owner of an object.
func owned[T metav1.Object](o T, volume string) T {
	o.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: "longhorn.io/v1beta2", Kind: "Volume", Name: volume, UID: build.Volume(volume).UID,
	}})
	return o
}

func wantInvalid(t *testing.T, err error, field, text string) {
	t.Helper()
	var invalid *Invalid
	require.ErrorAs(t, err, &invalid)
	assert.Equal(t, field, invalid.Field)
	assert.EqualError(t, err, text)
}

func wantProblem(t *testing.T, err, class error, text string) {
	t.Helper()
	var problem *Problem
	require.ErrorAs(t, err, &problem)
	require.ErrorIs(t, err, class, "want a Problem of class")
	assert.Equal(t, text, problem.Text)
}

func condition(conditionType string, status longhorn.ConditionStatus, reason, message string) longhorn.Condition {
	return longhorn.Condition{Type: conditionType, Status: status, Reason: reason, Message: message}
}
