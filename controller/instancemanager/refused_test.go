package instancemanager

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

const limitRange = "spec.containers[0].resources.requests: Invalid value: \"240m\": must be less than or equal to cpu limit of 100m"

func refusesPods(words string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, name, errors.New(words))
}

func (f *fixture) podReady() longhorn.Condition {
	f.T.Helper()
	m, err := f.store.InstanceManagers.Live(f.T.Context(), name)
	require.NoError(f.T, err)
	return types.FindCondition(m.Status.Conditions, types.ConditionPodReady)
}

func (f *fixture) mustRefuse() {
	f.T.Helper()
	_, err := f.sync(f.T.Context(), name)
	require.True(f.T, apierrors.IsForbidden(err), "sync = %v", err)
	f.CatchUp()
}

func TestARefusedPodIsShownInTheWordsOfTheAPIServerUntilItIsCreated(t *testing.T) {
	f := newFixture(t, build.Node("node-1"), stopped())
	words := "create pods " + name + ": pods \"" + name + "\" is forbidden: " + limitRange
	f.Fail("create", "pods", refusesPods(limitRange), refusesPods(limitRange), refusesPods(limitRange))
	f.mustRefuse()
	f.ExpectEvents("Warning NotFound "+name+": its pod does not exist", "Warning ChildRefused "+name+": "+words)
	f.mustRefuse()
	assert.Equal(t, longhorn.ConditionFalse, f.podReady().Status)
	assert.Equal(t, "ChildRefused", f.podReady().Reason)
	assert.Equal(t, words, f.podReady().Message)
	f.Writes()

	// The status that causes the next attempt is not written again. So the time between attempts is the same as for
	// any error.
	f.mustRefuse()
	f.ExpectWrites("create pods/" + name)
	f.ExpectEvents()

	f.mustSync()
	f.ExpectEvents("Normal Create " + name + ": Created pod " + name + " with image example/longhorn:1")
	f.CatchUp()
	f.mustSync()
	assert.Equal(t, "Starting", f.podReady().Reason)
}

func TestFiguresThatDifferAtEachAttemptAreNotWrittenAtEach(t *testing.T) {
	f := newFixture(t, build.Node("node-1"), stopped())
	f.Fail("create", "pods", refusesPods("used 1"), refusesPods("used 2"), refusesPods("used 3"))
	f.mustRefuse()
	f.mustRefuse()
	f.Writes()
	f.mustRefuse()
	f.ExpectWrites("create pods/" + name)
	assert.Contains(t, f.podReady().Message, "used 1")
}

func TestADaemonThatHasJustStartedKeepsTheWordsOfTheRefusal(t *testing.T) {
	before := longhorn.Condition{Type: types.ConditionPodReady, Status: longhorn.ConditionFalse, Reason: types.ReasonChildRefused, Message: "no"}
	m := stopped()
	m.Status.Conditions = []longhorn.Condition{before}
	p := plan(Input{Node: "node-1", Manager: m, Image: image}, time.Now())
	assert.Equal(t, ActionCreate, p.Action)
	assert.Equal(t, m.Status.Conditions, p.Status.Conditions)
}

// The controller keeps using a class if a refusal has another cause.
func TestARefusalWithEitherPriorityClassIsNotThatOfTheClass(t *testing.T) {
	f := newFixture(t, build.Node("node-1"), stopped(), build.Setting(settings.PriorityClass, "own"))
	f.Fail("create", "pods", refusesPods(limitRange), refusesPods(limitRange))
	f.mustRefuse()
	f.ExpectEvents("Warning NotFound "+name+": its pod does not exist",
		"Warning ChildRefused "+name+": create pods "+name+": pods \""+name+"\" is forbidden: "+limitRange)
	f.mustSync()
	pod, err := f.store.Pods.Live(t.Context(), name)
	require.NoError(t, err)
	assert.Equal(t, "own", pod.Spec.PriorityClassName)
}

func TestARefusedInstanceManagerIsAnEventOfItsNode(t *testing.T) {
	f := newFixture(t, build.Node("node-1"))
	f.Fail("create", "instancemanagers", apierrors.NewForbidden(schema.GroupResource{Group: "longhorn.io", Resource: "instancemanagers"}, name, errors.New("exceeded quota")))
	f.mustRefuse()
	f.ExpectEvents("Warning ChildRefused node-1: create instancemanagers.longhorn.io " + name +
		": instancemanagers.longhorn.io \"" + name + "\" is forbidden: exceeded quota")
	f.mustSync()
	f.ExpectEvents()
}
