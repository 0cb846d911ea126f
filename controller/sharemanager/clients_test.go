package sharemanager

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// kube is a Kubernetes node with an address and podCIDRs.
func kube(name, address string, podCIDRs ...string) *corev1.Node {
	return build.KubeNode(name, func(k *corev1.Node) {
		k.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: name}, {Type: corev1.NodeInternalIP, Address: address}}
		k.Spec.PodCIDRs = podCIDRs
	})
}

// says is a node with a daemon that reports these addresses.
func says(name string, addresses ...string) *longhorn.Node {
	return build.ReadyNode(name, "disk-"+name, func(n *longhorn.Node) { n.Status.Addresses = addresses })
}

func TestClientsOf(t *testing.T) {
	for _, c := range []struct {
		name    string
		allowed string // "": nodes
		kube    []*corev1.Node
		nodes   []*longhorn.Node
		last    map[string]string
		want    string // the lines with commas between them
		waiting string // the nodes with commas between them
		message string
	}{
		{
			name:  "all daemons say their addresses → these, once each",
			kube:  []*corev1.Node{kube("a", "10.0.0.1", "10.1.1.0/24"), kube("b", "10.0.0.2")},
			nodes: []*longhorn.Node{says("a", "10.0.0.1", "10.1.1.1", "172.17.0.1"), says("b", "10.0.0.2", "10.9.8.7", "172.17.0.1", "fd00::2")},
			want:  "10.0.0.1,10.0.0.2,10.1.1.1,10.9.8.7,172.17.0.1,fd00::2",
		},
		{
			name:  "a daemon says a network, and what is no address → neither counts",
			kube:  []*corev1.Node{kube("a", "10.0.0.1")},
			nodes: []*longhorn.Node{says("a", "10.0.0.1", "10.1.0.0/16", "nonsense")},
			want:  "10.0.0.1",
		},
		{
			name: "an address that only other machines know → it, too",
			kube: []*corev1.Node{build.KubeNode("a", func(k *corev1.Node) {
				k.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}, {Type: corev1.NodeExternalIP, Address: "192.0.2.1"}, {Type: corev1.NodeExternalDNS, Address: "a.example"}}
			})},
			nodes: []*longhorn.Node{says("a", "10.0.0.1")},
			want:  "10.0.0.1,192.0.2.1",
		},
		{
			name:  "a daemon that has not reported, plugin uses podCIDRs → the first two of its own",
			kube:  []*corev1.Node{kube("a", "10.0.0.1", "10.1.1.0/24"), kube("b", "10.0.0.2", "10.1.2.0/24", "fd00:2::/64")},
			nodes: []*longhorn.Node{says("a", "10.0.0.1", "10.1.1.1"), says("b")},
			want:  "10.0.0.1,10.0.0.2,10.1.1.1,10.1.2.0,10.1.2.1,fd00:2::,fd00:2::1",
		},
		{
			name:  "a node without a CSI plugin, plugin uses podCIDRs → left out",
			kube:  []*corev1.Node{kube("a", "10.0.0.1", "10.1.1.0/24"), kube("b", "10.0.0.2", "10.1.2.0/24", "fd00:2::/64")},
			nodes: []*longhorn.Node{says("a", "10.0.0.1", "10.1.1.1")},
			want:  "10.0.0.1,10.1.1.1",
		},
		{
			name:  "a node without a CSI plugin, plugin has addresses of its own → left out",
			kube:  []*corev1.Node{kube("a", "10.0.0.1"), kube("new", "10.0.0.2")},
			nodes: []*longhorn.Node{says("a", "10.0.0.1", "10.244.3.1")},
			want:  "10.0.0.1,10.244.3.1",
		},
		{
			name:  "daemons that have not reported, plugin has addresses of its own → their nodes wait, and nothing is opened",
			kube:  []*corev1.Node{kube("c", "10.0.0.3", "10.1.3.0/24"), kube("a", "10.0.0.1", "10.1.1.0/24"), kube("b", "10.0.0.2", "10.1.2.0/24")},
			nodes: []*longhorn.Node{says("a", "10.0.0.1", "10.244.3.1"), says("b"), says("c")},
			want:  "10.0.0.1,10.0.0.2,10.0.0.3,10.244.3.1", waiting: "b,c",
		},
		{
			name:  "a daemon that looked at another network → its node waits",
			kube:  []*corev1.Node{kube("a", "10.0.0.1")},
			nodes: []*longhorn.Node{says("a", "10.1.1.7")},
			want:  "10.0.0.1", waiting: "a",
		},
		{
			name:  "a node is not known yet, and the last list was any, of an earlier release → closed",
			kube:  []*corev1.Node{kube("a", "10.0.0.1"), kube("new", "10.0.0.2")},
			nodes: []*longhorn.Node{says("a", "10.0.0.1"), says("new")},
			last:  map[string]string{"clients": "any", "reason": "AddressesNotKnown"},
			want:  "10.0.0.1,10.0.0.2", waiting: "new",
		},
		{
			name:  "a daemon reports no more, as one of an earlier release → the addresses of the last list stay",
			kube:  []*corev1.Node{kube("a", "10.0.0.1"), kube("b", "10.0.0.2")},
			nodes: []*longhorn.Node{says("a", "10.0.0.1", "10.9.0.1"), says("b")},
			last:  map[string]string{"clients": "10.0.0.2\n10.9.0.2\n", "nodes": "b 10.0.0.2 10.9.0.2 nonsense\ngone 10.9.0.3\n\n"},
			want:  "10.0.0.1,10.0.0.2,10.9.0.1,10.9.0.2",
		},
		{
			name:  "a daemon reports others than in the last list → these alone",
			kube:  []*corev1.Node{kube("a", "10.0.0.1")},
			nodes: []*longhorn.Node{says("a", "10.0.0.1", "10.9.0.7")},
			last:  map[string]string{"nodes": "a 10.0.0.1 10.9.0.1\n"},
			want:  "10.0.0.1,10.9.0.7",
		},
		{
			name:    "a setting that was wider → the last list does not keep it so",
			allowed: "nodes",
			kube:    []*corev1.Node{kube("a", "10.0.0.1")},
			nodes:   []*longhorn.Node{says("a")},
			last:    map[string]string{"clients": "0.0.0.0/0\n", "nodes": "a 0.0.0.0/0\n"},
			want:    "10.0.0.1", waiting: "a",
		},
		{
			name:    "a node that is not known, and networks from the setting → both, and it does not wait",
			allowed: "nodes, 10.244.0.0/28,192.0.2.9",
			kube:    []*corev1.Node{kube("b", "10.0.0.2")},
			nodes:   []*longhorn.Node{says("b")},
			want:    "10.0.0.2,10.244.0.0/28,192.0.2.9",
		},
		{
			name: "no node can mount → a list of nobody, for an empty one opens shares of an earlier release",
			kube: []*corev1.Node{kube("a", "10.0.0.1")},
			want: "127.0.0.1",
		},
		{
			name:    "networks alone → no node",
			allowed: "10.0.0.0/8",
			kube:    []*corev1.Node{kube("a", "192.0.2.1")},
			nodes:   []*longhorn.Node{says("a", "192.0.2.1")},
			want:    "10.0.0.0/8",
		},
		{
			name:    "any → any",
			allowed: "any",
			kube:    []*corev1.Node{kube("a", "10.0.0.1")},
			nodes:   []*longhorn.Node{says("a", "10.0.0.1")},
			want:    "any", message: "setting rwx-volume-allowed-clients is any",
		},
		{
			name:  "a node that left the cluster → not listed",
			kube:  []*corev1.Node{kube("a", "10.0.0.1")},
			nodes: []*longhorn.Node{says("a", "10.0.0.1"), says("b", "10.0.0.2")},
			want:  "10.0.0.1",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.allowed == "" {
				c.allowed = "nodes"
			}
			allowed, err := types.ParseShareClients(c.allowed)
			require.NoError(t, err)
			in := ClientsInput{Allowed: allowed, KubeNodes: c.kube, Nodes: map[string]*longhorn.Node{}, Last: c.last}
			for _, n := range c.nodes {
				in.Nodes[n.Name] = n
			}
			got := clientsOf(in)
			assert.Equal(t, c.want, strings.Join(strings.Fields(got["clients"]), ","))
			assert.Equal(t, c.waiting, strings.Join(strings.Fields(got["waiting"]), ","))
			if c.message == "" {
				assert.Empty(t, got["message"])
			} else {
				assert.Contains(t, got["message"], c.message)
			}
		})
	}
}

func TestClientsLimited(t *testing.T) {
	limits := map[string]string{"clients": "10.0.0.1\n"}
	open := map[string]string{"clients": "any", "reason": "AddressesNotKnown", "message": "node a is not known"}
	withList := &corev1.Pod{Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "dev"}, {Name: "clients"}}}}
	older := &corev1.Pod{Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "dev"}}}}
	for _, c := range []struct {
		name string
		pod  *corev1.Pod
		data map[string]string
		want string
		text string
	}{
		{"a list → limited", withList, limits, "True", "ConfigMap longhorn-share-clients"},
		{"a list, no pod yet → the next one is", nil, limits, "True", ""},
		{"any → open, and why", withList, open, "False AddressesNotKnown", "node a is not known"},
		{"no list yet → told", withList, nil, "False NotListedYet", ""},
		{"a list with a remark → told", withList, map[string]string{"clients": "10.0.0.1\n", "message": "too long"}, "True", "may mount the volume; too long"},
		{"a list, and a pod that has none → open", older, limits, "False PodOfEarlierRelease", "earlier release"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := clientsLimited(c.pod, c.data)
			assert.Equal(t, "ClientsLimited", got.Type)
			assert.Equal(t, c.want, strings.TrimSpace(string(got.Status)+" "+got.Reason))
			assert.Contains(t, got.Message, c.text)
		})
	}
}

func TestWhetherClientsAreLimitedStaysUntilTheListIsSeen(t *testing.T) {
	s := used()
	condition := func() longhorn.Condition {
		return types.FindCondition(plan(s.Input).Status.Conditions, types.ConditionClientsLimited)
	}
	assert.Equal(t, types.ReasonClientsNotListed, condition().Reason, "there never was one")
	s.Clients = map[string]string{"clients": "10.0.0.1\n"}
	s.Share.Status = plan(s.Input).Status
	s.Clients = nil
	assert.Equal(t, longhorn.ConditionTrue, condition().Status, "the next leader has not seen it yet")
	s.Clients = anyClient("R", "m")
	assert.Equal(t, "R", condition().Reason)
}

// TestTheListFollowsNodesAndSetting: the ConfigMap is created, follows the nodes and the setting, and is restored after
// it is deleted or changed.
func TestTheListFollowsNodesAndSetting(t *testing.T) {
	h := testutil.New(t, kube("a", "10.0.0.1"), says("a", "10.0.0.1", "10.1.1.1"), build.Setting(settings.RWXVolumeAllowedClients, "nodes"))
	store := h.Datastore(datastore.Options{})
	c, err := NewClients(ClientsDeps{
		Env: h.Env(), Namespace: types.Namespace, ConfigMap: store.ShareClients, Nodes: store.Nodes, KubeNodes: store.KubeNodes,
		Settings: store.Settings, Setting: store.Setting,
	})
	require.NoError(t, err)
	h.EndWithTest(c.Run)
	step := func(want string, writes ...string) {
		t.Helper()
		_, err := c.sync(t.Context(), types.ShareClientsConfigMap)
		require.NoError(t, err)
		h.ExpectWrites(writes...)
		h.CatchUp()
		cm, err := store.ShareClients.GetRO(types.ShareClientsConfigMap)
		require.NoError(t, err)
		assert.Equal(t, want, cm.Data["clients"])
	}
	_, err = c.sync(t.Context(), types.ShareClientsConfigMap)
	require.NoError(t, err)
	h.ExpectWrites("create configmaps/longhorn-share-clients")
	_, err = c.sync(t.Context(), types.ShareClientsConfigMap)
	require.ErrorIs(t, err, queue.ErrStale, "the cache has not shown it yet")
	h.ExpectWrites("create configmaps/longhorn-share-clients") // which the API server refuses
	h.CatchUp()
	step("10.0.0.1\n10.1.1.1\n")
	h.Overwrite(says("a", "10.0.0.1", "10.1.1.2"))
	h.CatchUp()
	_, err = c.sync(t.Context(), types.ShareClientsConfigMap)
	require.NoError(t, err)
	h.ExpectWrites("update configmaps/longhorn-share-clients")
	_, err = c.sync(t.Context(), types.ShareClientsConfigMap)
	require.ErrorIs(t, err, queue.ErrStale, "the cache shows the former list")
	h.ExpectWrites()
	h.CatchUp()
	h.Overwrite(says("a", "10.0.0.1", "10.1.1.3"))
	h.CatchUp()
	step("10.0.0.1\n10.1.1.3\n", "update configmaps/longhorn-share-clients")
	h.Overwrite(says("a")) // a daemon of an earlier release wrote its status
	h.CatchUp()
	step("10.0.0.1\n10.1.1.3\n")
	h.Overwrite(build.Setting(settings.RWXVolumeAllowedClients, "any"))
	h.CatchUp()
	step("any", "update configmaps/longhorn-share-clients")
}

// Without a ConfigMap there are no events for it.
func TestTheListIsMadeWithoutAnEvent(t *testing.T) {
	h := testutil.New(t)
	store := h.Datastore(datastore.Options{})
	c, err := NewClients(ClientsDeps{
		Env: h.Env(), Namespace: types.Namespace, ConfigMap: store.ShareClients, Nodes: store.Nodes, KubeNodes: store.KubeNodes,
		Settings: store.Settings, Setting: store.Setting,
	})
	require.NoError(t, err)
	made := make(chan struct{}, 1)
	h.Kube.PrependReactor("create", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		made <- struct{}{}
		return false, nil, nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	select {
	case <-made:
	case <-time.After(time.Minute):
		t.Error("the list is not made")
	}
	cancel()
	require.NoError(t, <-ended)
}

func TestARefusedListIsAnEventOfTheSettingOnce(t *testing.T) {
	h := testutil.New(t)
	store := h.Datastore(datastore.Options{})
	c, err := NewClients(ClientsDeps{
		Env: h.Env(), Namespace: types.Namespace, ConfigMap: store.ShareClients, Nodes: store.Nodes, KubeNodes: store.KubeNodes,
		Settings: store.Settings, Setting: store.Setting,
	})
	require.NoError(t, err)
	h.EndWithTest(c.Run)
	quota := apierrors.NewForbidden(corev1.Resource("configmaps"), types.ShareClientsConfigMap, errors.New("exceeded quota"))
	h.Fail("create", "configmaps", quota, quota)
	for range 2 {
		_, err := c.sync(t.Context(), types.ShareClientsConfigMap)
		require.ErrorIs(t, err, quota)
	}
	said := h.Recorder.Take()
	require.Len(t, said, 1)
	assert.Contains(t, said[0], "Warning ChildRefused rwx-volume-allowed-clients: create ")
	assert.Contains(t, said[0], "exceeded quota")
}

func TestWhatWakesTheList(t *testing.T) {
	was, is := says("a", "10.0.0.1"), says("a", "10.0.0.1")
	is.Status.DiskStatus = nil
	assert.Empty(t, whenAddresses(was, is), "free space changes all the time")
	assert.Equal(t, theClients, whenAddresses(was, says("a", "10.0.0.2")))
	assert.Equal(t, theClients, whenAddresses(nil, is))
	assert.Equal(t, theClients, whenAddresses(was, nil))
	assert.Empty(t, whenKubeAddresses(kube("a", "10.0.0.1"), kube("a", "10.0.0.1")), "heartbeats come all the time")
	assert.Equal(t, theClients, whenKubeAddresses(kube("a", "10.0.0.1"), kube("a", "10.0.0.2")))
	assert.Equal(t, theClients, whenKubeAddresses(kube("a", "10.0.0.1"), kube("a", "10.0.0.1", "10.1.1.0/24")))
	assert.Equal(t, theClients, whenKubeAddresses(kube("a", "10.0.0.1"), nil))
	assert.Equal(t, theClients, whenAllowed(build.Setting("rwx-volume-allowed-clients", "any")))
	assert.Empty(t, whenAllowed(build.Setting("log-level", "Info")))

	h, c := start(t)
	h.CatchUp()
	limits := &corev1.ConfigMap{Data: map[string]string{"clients": "10.0.0.1\n"}}
	more := &corev1.ConfigMap{Data: map[string]string{"clients": "10.0.0.1\n10.0.0.2\n"}}
	open := &corev1.ConfigMap{Data: anyClient("R", "m")}
	assert.Empty(t, c.whenClients(limits, more), "who they are is for the pods to know")
	assert.Equal(t, []string{"vol"}, c.whenClients(limits, open))
	assert.Equal(t, []string{"vol"}, c.whenClients(open, limits))
	assert.Equal(t, []string{"vol"}, c.whenClients(nil, limits))
	assert.Equal(t, []string{"vol"}, c.whenClients(limits, nil))
}

func TestAListThatDoesNotFitAConfigMapHasTheNodesOwnAddresses(t *testing.T) {
	if testing.Short() {
		t.Skip("a cluster of 3,000 nodes takes seconds: not with -short")
	}
	in := ClientsInput{Allowed: types.ShareClients{Nodes: true}, Nodes: map[string]*longhorn.Node{}}
	for i := range 3000 {
		name, address := fmt.Sprintf("n%d", i), fmt.Sprintf("10.%d.%d.1", i/250, i%250)
		said := []string{address}
		for j := range 40 {
			said = append(said, fmt.Sprintf("172.%d.%d.%d", i/250, i%250, j))
		}
		in.KubeNodes = append(in.KubeNodes, kube(name, address))
		in.Nodes[name] = says(name, said...)
	}
	got := clientsOf(in)
	assert.Len(t, strings.Fields(got["clients"]), 3000)
	assert.Contains(t, got["message"], "but ConfigMap longhorn-share-clients can hold only 921600")
	assert.Less(t, sizeOf(got), maxClientsBytes)
	in.KubeNodes = in.KubeNodes[:700]
	assert.Greater(t, len(clientsOf(in)["clients"]), 350_000, "one that fits")
	assert.Empty(t, clientsOf(in)["message"])
}
