package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/devcluster/config"
	"github.com/longhorn-lep/longhorn-manager/devcluster/proc"
)

func TestStateIsReadBackAsItWasSaved(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state.json")
	_, err := loadState(file)
	require.ErrorIs(t, err, ErrNoCluster, "no file")
	want := &State{
		Complete: true,
		APIPort:  4321,
		Plane:    proc.Record{PID: 7, StartTicks: 8, BootID: "b"},
		Nodes:    []Node{{Name: "node-1", Index: 1, FSType: "xfs", Init: proc.Record{PID: 9, StartTicks: 10, BootID: "b"}, Stopped: true, Cut: true}},
		Forwards: []Forward{{Listen: "127.0.0.1:1", Target: "10.96.0.1:2", From: "node-1", Proc: proc.Record{PID: 11, StartTicks: 12, BootID: "b"}}},
		Images:   []string{"a.tar", "b.tar"},
		Restore:  map[string]string{"/proc/x": "1\n"},
		MadeDirs: []string{"/dev/longhorn"},
	}
	require.NoError(t, want.save(file))
	got, err := loadState(file)
	require.NoError(t, err)
	assert.Equal(t, want, got)
	require.NoError(t, os.WriteFile(file, []byte("{"), 0o600))
	_, err = loadState(file)
	require.Error(t, err)
	assert.NotErrorIs(t, err, ErrNoCluster, "torn file")
}

func TestAddNode(t *testing.T) {
	full := State{}
	for i := 1; i <= config.MaxNodes; i++ {
		full.Nodes = append(full.Nodes, Node{Name: "n", Index: i})
	}
	for name, c := range map[string]struct {
		state State
		add   string
		want  int
		fails bool
	}{
		"no nodes → index 1":               {State{}, "node-1", 1, false},
		"a gap → the gap is filled":        {State{Nodes: []Node{{Name: "a", Index: 1}, {Name: "c", Index: 3}}}, "b", 2, false},
		"the name is taken → refused":      {State{Nodes: []Node{{Name: "a", Index: 1}}}, "a", 0, true},
		"a name that is no name → refused": {State{}, "No/De", 0, true},
		"every index is taken → refused":   {full, "one-more", 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			n, err := c.state.addNode(c.add, "ext4", nil)
			require.Equal(t, c.fails, err != nil, err)
			if err == nil {
				assert.Equal(t, c.want, n.Index, "%+v, not running yet", *n)
				assert.Equal(t, c.add, n.Name)
				assert.True(t, n.Stopped)
			}
		})
	}
}

func TestRemoveNodeKeepsTheOthers(t *testing.T) {
	s := State{Nodes: []Node{{Name: "a", Index: 1}, {Name: "b", Index: 2}, {Name: "c", Index: 3}}}
	s.removeNode("b")
	want := []Node{{Name: "a", Index: 1}, {Name: "c", Index: 3}}
	assert.Equal(t, want, s.Nodes)
	_, err := s.node("b")
	assert.ErrorIs(t, err, ErrUnknownNode, "removed node")
	_, err = s.runningNode("a")
	assert.ErrorIs(t, err, ErrStopped, "node without process")
}

func TestNewLayout(t *testing.T) {
	for name, c := range map[string]struct {
		dir, name string
		ok        bool
	}{
		"absolute directory → accepted":    {"/var/lib/x", "longhorn", true},
		"relative directory → refused":     {"x", "longhorn", false},
		"root directory → refused":         {"/a/..", "longhorn", false},
		"name with a slash → refused":      {"/var/lib/x", "a/b", false},
		"no name → refused":                {"/var/lib/x", "", false},
		"name that ends in dash → refused": {"/var/lib/x", "a-", false},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewLayout(c.dir, c.name)
			assert.Equal(t, c.ok, err == nil, err)
		})
	}
}

// Two clusters may exist at the same time only if they share no path and no name.
func TestLayoutsWithOtherDirAndNameShareNothing(t *testing.T) {
	a, b := Layout{Dir: "/a", Name: "a"}, Layout{Dir: "/b", Name: "b"}
	names := func(l Layout) []string {
		return []string{l.Kubeconfig(), l.Binary(), l.stateFile(), l.node("n"), l.pki("x"), l.image("x"), l.routerNetns(), l.planeNetns(), l.nodeNetns("n"), l.cgroup("n"), l.cgroupRoot()}
	}
	seen := map[string]bool{}
	for _, name := range append(names(a), names(b)...) {
		assert.False(t, seen[name], "%s is used twice", name)
		seen[name] = true
	}
}

func TestLockKeepsASecondCommandOut(t *testing.T) {
	l := Layout{Dir: t.TempDir(), Name: "x"}
	unlock, err := l.lock()
	require.NoError(t, err)
	_, err = l.lock()
	assert.ErrorContains(t, err, fmt.Sprintf("(process %d: ", os.Getpid()), "locked twice")
	unlock()
	again, err := l.lock()
	require.NoError(t, err, "after unlock")
	again()
}

func TestIsReady(t *testing.T) {
	reported := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	node := func(status corev1.ConditionStatus) corev1.Node {
		return corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionTrue},
			{Type: corev1.NodeReady, Status: status, LastHeartbeatTime: metav1.NewTime(reported)},
		}}}
	}
	for name, c := range map[string]struct {
		node  corev1.Node
		since time.Time
		want  bool
	}{
		"ready, reported since → ready":             {node(corev1.ConditionTrue), reported, true},
		"ready, but by an older report → not ready": {node(corev1.ConditionTrue), reported.Add(time.Second), false},
		"not ready → not ready":                     {node(corev1.ConditionFalse), reported, false},
		"unknown, as when cut off → not ready":      {node(corev1.ConditionUnknown), reported, false},
		"no report yet → not ready":                 {corev1.Node{}, time.Time{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, c.want, isReady(c.node, c.since))
		})
	}
}
