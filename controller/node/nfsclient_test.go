package node

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/cache"

	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestHostNFSClient(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "nfs-client")
	h := HostNFSClient{Directory: dir}
	identify := func(wanted string) string {
		t.Helper()
		got, err := h.Identify(wanted)
		require.NoError(t, err)
		return got
	}
	assert.Empty(t, identify(""), "the Node has no UID yet")
	assert.NoDirExists(t, dir)
	assert.Empty(t, identify("uid-1"), "the plugin has said nothing")
	wanted := func() string {
		data, err := os.ReadFile(filepath.Join(dir, "wanted"))
		require.NoError(t, err)
		return string(data)
	}
	assert.Equal(t, "uid-1", wanted())
	assert.Empty(t, identify("uid-2"))
	assert.Equal(t, "uid-2", wanted(), "of a Node that was made anew")
	for _, c := range []struct{ name, held, want string }{
		{"ours → it", "uid-2", "uid-2"},
		{"an administrator's → it", "theirs", "theirs"},
		{"not known → nothing", "", ""},
		{"what no name can be matched by → nothing", "a/b", ""},
		{"what the API server would refuse → nothing", strings.Repeat("x", 64), ""},
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "held"), []byte(c.held), 0o600))
		assert.Equal(t, c.want, identify("uid-2"), c.name)
	}
	require.NoError(t, os.RemoveAll(dir))
	require.NoError(t, os.WriteFile(dir, nil, 0o600))
	_, err := h.Identify("uid-2")
	assert.ErrorContains(t, err, "store the wanted identifier")
}

func TestTheStatusHasTheIdentifierThatHolds(t *testing.T) {
	status := func(before string, said *string) string {
		in := input(func(in *Input) { in.Node.Status.NFSClientID, in.NFSClientID = before, said })
		return plan(in, testutil.Now).Status.NFSClientID
	}
	said, nothing := "uid-1", ""
	assert.Equal(t, "uid-1", status("", &said))
	assert.Empty(t, status("uid-1", &nothing), "not known any more")
	assert.Equal(t, "uid-1", status("uid-1", nil), "nobody looked")
}

func TestTheDaemonAsksForTheUIDOfItsNode(t *testing.T) {
	f := newFixture(t, build.KubeNode("node-1"), build.Node("node-1", func(n *longhorn.Node) { n.UID = "uid-of-node-1" }))
	var asked []string
	f.Controller.deps.NFSClient = func(wanted string) (string, error) {
		asked = append(asked, wanted)
		return "theirs", nil
	}
	f.mustSync()
	assert.Equal(t, "uid-of-node-1", asked[0])
	assert.Equal(t, "theirs", f.live().Status.NFSClientID)
	f.Controller.deps.NFSClient = func(string) (string, error) { return "", os.ErrPermission }
	f.CatchUp()
	f.mustSync()
	assert.Empty(t, f.live().Status.NFSClientID)
}

func clientNode(name, id string, conditions ...longhorn.Condition) *longhorn.Node {
	return build.Node(name, func(n *longhorn.Node) { n.Status.NFSClientID, n.Status.Conditions = id, conditions })
}

func TestClientIDUnique(t *testing.T) {
	shared := longhorn.Condition{Type: "NFSClientIDUnique", Status: "False", Reason: "NFSClientIDShared", LastTransitionTime: "2020-01-01T00:00:00Z"}
	for _, c := range []struct {
		name   string
		node   *longhorn.Node
		others []*longhorn.Node
		want   string
		text   string
	}{
		{"alone → none", clientNode("a", "x"), nil, "Unknown", ""},
		{"others have others → none", clientNode("a", "x"), []*longhorn.Node{clientNode("b", "y"), clientNode("c", "xx")}, "Unknown", ""},
		{"none is known → none", clientNode("a", ""), []*longhorn.Node{clientNode("b", "")}, "Unknown", ""},
		{"one is not known → none", clientNode("a", "x"), []*longhorn.Node{clientNode("b", "")}, "Unknown", ""},
		{"another has it → False", clientNode("a", "x"), []*longhorn.Node{clientNode("c", "x"), clientNode("b", "x"), clientNode("d", "y")}, "False NFSClientIDShared", `"x", and so have the NFS clients of b, c: `},
		{
			"many have it → False, five are named", clientNode("a", "x"),
			[]*longhorn.Node{clientNode("b", "x"), clientNode("c", "x"), clientNode("d", "x"), clientNode("e", "x"), clientNode("f", "x"), clientNode("g", "x"), clientNode("h", "x")},
			"False NFSClientIDShared", "of b, c, d, e, f and 2 more: ",
		},
		{"no other has it any more → True", clientNode("a", "x", shared), []*longhorn.Node{clientNode("b", "y")}, "True", "no other node"},
		{"its own is not known any more → True", clientNode("a", "", shared), []*longhorn.Node{clientNode("b", "")}, "True", "no other node"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := types.FindCondition(clientIDUnique(c.node, append(c.others, c.node), testutil.Now), "NFSClientIDUnique")
			assert.Equal(t, c.want, strings.TrimSpace(string(got.Status)+" "+got.Reason))
			assert.Contains(t, got.Message, c.text)
		})
	}
}

func TestTheMonitorTellsBothNodesOfOneIdentifier(t *testing.T) {
	h := testutil.New(t, build.KubeNode("node-1"), build.KubeNode("node-2"), clientNode("node-1", "x"), clientNode("node-2", "y"), clientNode("node-3", ""))
	d := h.Datastore(datastore.Options{})
	m, err := NewMonitor(MonitorDeps{Liveness: &foundSilent{}, Nodes: d.Nodes, KubeNodes: d.KubeNodes, Pods: d.Pods, Env: h.Env()})
	require.NoError(t, err)
	h.EndWithTest(m.Run)
	assert.Equal(t, []string{"node-1"}, m.sharersOfClientID(nil, clientNode("node-1", "x")))
	assert.Nil(t, m.sharersOfClientID(clientNode("node-1", "x"), clientNode("node-1", "x")), "nothing changed")
	assert.Nil(t, m.sharersOfClientID(clientNode("node-3", ""), clientNode("node-3", "")))
	assert.ElementsMatch(t, []string{"node-1", "node-2"}, m.sharersOfClientID(clientNode("node-3", "x"), clientNode("node-3", "y")), "who had its company, and who gets it")
	assert.Equal(t, []string{"node-2"}, m.sharersOfClientID(clientNode("node-4", "y"), nil), "a node that is deleted")

	h.Overwrite(clientNode("node-2", "x"))
	h.CatchUp()
	h.Recorder.Take()
	for _, name := range []string{"node-1", "node-2"} {
		_, err := m.sync(t.Context(), name)
		require.NoError(t, err)
		h.CatchUp()
		n, err := d.Nodes.Get(name)
		require.NoError(t, err)
		assert.Equal(t, "NFSClientIDShared", types.FindCondition(n.Status.Conditions, "NFSClientIDUnique").Reason)
		assert.Contains(t, strings.Join(h.Recorder.Take(), "\n"), "Warning NFSClientIDShared "+name)
	}
}

// heardNodes keeps the handlers of events, for a test to call.
type heardNodes struct {
	MonitoredNodes
	handlers []cache.ResourceEventHandler
}

func (h *heardNodes) AddHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	h.handlers = append(h.handlers, handler)
	return nil, nil
}

func TestANodeIsLookedAtWhenAnotherTakesItsIdentifier(t *testing.T) {
	h := testutil.New(t, build.KubeNode("node-1"), build.KubeNode("node-2"), clientNode("node-1", "x"), clientNode("node-2", "x"))
	d := h.Datastore(datastore.Options{})
	nodes := &heardNodes{MonitoredNodes: d.Nodes}
	m, err := NewMonitor(MonitorDeps{Liveness: &foundSilent{}, Nodes: nodes, KubeNodes: d.KubeNodes, Pods: d.Pods, Env: h.Env()})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	for _, handler := range nodes.handlers {
		handler.OnUpdate(clientNode("node-2", "y"), clientNode("node-2", "x"))
	}
	assert.Eventually(t, func() bool {
		n, err := d.Nodes.Live(t.Context(), "node-1")
		return err == nil && types.FindCondition(n.Status.Conditions, types.ConditionNFSClientIDUnique).Status == longhorn.ConditionFalse
	}, 20*time.Second, 10*time.Millisecond)
	cancel()
	require.NoError(t, <-done)
}
