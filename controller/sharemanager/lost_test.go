package sharemanager

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	kubetypes "k8s.io/apimachinery/pkg/types"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// ready sets the condition Ready of a node, with its time.
func ready(status longhorn.ConditionStatus, reason string, ago time.Duration) func(*longhorn.Node) {
	return func(n *longhorn.Node) {
		n.Status.Conditions, _ = types.SetCondition(nil, longhorn.Condition{Type: types.ConditionReady, Status: status, Reason: reason}, testutil.Now.Add(-ago))
	}
}

// silent makes a node one that neither its leader nor a witness reaches. The node's NFS client has the node's UID as
// identifier.
func silent(n *longhorn.Node) {
	n.UID = kubetypes.UID("uid-" + n.Name)
	n.Status.NFSClientID = string(n.UID)
	n.Status.Silence = &longhorn.NodeSilence{Witness: "a", BootID: "boot-1"}
	ready("False", types.ReasonNodeNotAnswering, 0)(n)
}

// inBoot gives a Kubernetes node an address and a boot.
func inBoot(ip, boot string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: ip}}
		n.Status.NodeInfo.BootID = boot
	}
}

// deletedServer is a share with a last pod that guarded its port. That pod was deleted some time ago, with the engine
// of generation 7.
func deletedServer(ago time.Duration) *longhorn.ShareManager {
	s := &longhorn.ShareManager{}
	s.Name = "vol"
	s.Status.Server = &longhorn.ShareServer{PodUID: "pod", Generation: 7, DeletedAt: types.Timestamp(testutil.Now.Add(-ago))}
	return s
}

func withEpoch(generation int64) func(*longhorn.Engine) {
	return func(e *longhorn.Engine) { e.Status.Epoch = &longhorn.Epoch{Generation: generation, Counter: 1} }
}

func TestOnlyClientsThatAWitnessCannotReachAreInTheList(t *testing.T) {
	inList := []types.LostNode{{ClientID: "uid-x", Addresses: []string{"10.0.0.3:10250", "10.9.0.3:8500"}}}
	for name, tc := range map[string]struct {
		change func(x *longhorn.Node, k *corev1.Node)
		other  func(n *longhorn.Node)
		want   []types.LostNode
	}{
		"leader and witness cannot reach it → in the list": {want: inList},
		"no witness → not":                                     {change: func(x *longhorn.Node, _ *corev1.Node) { x.Status.Silence.Witness = "" }},
		"Kubernetes alone says it → not":                       {change: func(x *longhorn.Node, _ *corev1.Node) { x.Status.Silence = nil }},
		"it answers again, and the silence is not removed yet": {change: func(x *longhorn.Node, _ *corev1.Node) { ready("True", "", 0)(x) }},
		"its boot is not known → not":                          {change: func(x *longhorn.Node, _ *corev1.Node) { x.Status.Silence.BootID = "" }},
		"it has booted since → not":                            {change: func(_ *longhorn.Node, k *corev1.Node) { k.Status.NodeInfo.BootID = "boot-2" }},
		"an administrator's identifier → not":                  {change: func(x *longhorn.Node, _ *corev1.Node) { x.Status.NFSClientID = "admin" }},
		"no identifier → not":                                  {change: func(x *longhorn.Node, _ *corev1.Node) { x.Status.NFSClientID = "" }},
		"another node has its identifier → not":                {other: func(n *longhorn.Node) { n.Status.NFSClientID = "uid-x" }},
		"no address → not":                                     {change: func(_ *longhorn.Node, k *corev1.Node) { k.Status.Addresses, k.Name = nil, "z" }},
		"two nodes are down → both": {
			other: func(n *longhorn.Node) { silent(n); n.Status.Silence.Witness, n.Status.Silence.BootID = "b", "boot-w" },
			want:  []types.LostNode{{ClientID: "uid-w", Addresses: []string{"10.0.0.4:10250"}}, inList[0]},
		},
	} {
		t.Run(name, func(t *testing.T) {
			x, w := build.ReadyNode("x", "disk-x", silent), build.ReadyNode("w", "disk-w", ready("True", "", time.Hour))
			k := build.KubeNode("x", inBoot("10.0.0.3", "boot-1"))
			if tc.change != nil {
				tc.change(x, k)
			}
			if tc.other != nil {
				tc.other(w)
			}
			_, c := start(t, x, w, k, build.KubeNode("w", inBoot("10.0.0.4", "boot-w")), build.RunningInstanceManager("x", "10.9.0.3", "im"), build.Engine("vol", withEpoch(7)))
			in := Input{Share: deletedServer(time.Second), Now: testutil.Now}
			require.NoError(t, c.gatherLost(&in))
			if tc.want == nil {
				assert.Empty(t, in.lost())
				return
			}
			in.Controls = append(in.Controls, types.Control{Node: "extra", Address: "10.0.0.9:1"}) // w may be down
			assert.Equal(t, tc.want, in.lost().Nodes)
			assert.Equal(t, int64(7), in.lost().After)
		})
	}
}

func TestOtherNodesAreThoseThatAnswer(t *testing.T) {
	_, c := start(t,
		build.ReadyNode("x", "disk-x", silent), build.KubeNode("x", inBoot("10.0.0.3", "boot-1")),
		build.ReadyNode("w", "disk-w", ready("True", "", time.Hour)), build.KubeNode("w", inBoot("10.0.0.4", "boot-w")),
		build.ReadyNode("v", "disk-v", ready("False", types.ReasonKubernetesNodeNotReady, time.Hour)), build.KubeNode("v", inBoot("10.0.0.5", "boot-v")),
		build.ReadyNode("t", "disk-t", silent, ready("True", "", time.Hour)), build.KubeNode("t", inBoot("10.0.0.7", "boot-1")),
		build.ReadyNode("u", "disk-u", ready("True", "", time.Hour)), build.KubeNode("u", inBoot("10.0.0.6", "boot-u")), build.Engine("vol", withEpoch(7)))
	in := Input{Share: deletedServer(time.Second), Now: testutil.Now}
	require.NoError(t, c.gatherLost(&in))
	assert.Equal(t, []types.Control{{Node: "u", Address: "10.0.0.6:10250"}, {Node: "w", Address: "10.0.0.4:10250"}}, in.Controls)
	in.Controls = nil
	assert.Empty(t, in.lost(), "silence that nothing is compared with proves nothing")
	for _, node := range []string{"1", "2", "3", "4"} {
		in.Controls = append(in.Controls, types.Control{Node: node, Address: "10.0.0.9:1"})
	}
	assert.Len(t, in.lost().Controls, 3)
}

// TestEachListHasEntriesOfItsOwn: a client in an earlier list also gets an entry for a later list.
func TestEachListHasEntriesOfItsOwn(t *testing.T) {
	in := Input{Share: deletedServer(time.Second), Now: testutil.Now, Generation: 7, Controls: []types.Control{{Node: "w", Address: "10.0.0.4:1"}}, Fates: map[string]fate{
		"uid-x": {clientID: "uid-x", name: "x", isDown: true, bootID: "boot-1", listed: types.LostNode{ClientID: "uid-x", Addresses: []string{"10.0.0.3:1"}}},
	}}
	of := func(after int64) longhorn.LostClient {
		return longhorn.LostClient{ID: "uid-x", Node: "x", BootID: "boot-1", After: after}
	}
	told := of(6)
	told.Dropped, told.RemountRequestedAt = true, types.Timestamp(now)
	p := Plan{Status: longhorn.ShareManagerStatus{LostClients: []longhorn.LostClient{told}}}
	in.list(&p)
	in.list(&p)
	assert.Equal(t, []longhorn.LostClient{told, of(7)}, p.Status.LostClients, "once for each list")

	p.Status.LostClients = nil
	for i := range maxLostClients {
		p.Status.LostClients = append(p.Status.LostClients, of(int64(i)+100))
	}
	in.list(&p)
	assert.Len(t, p.Status.LostClients, maxLostClients)
	assert.Equal(t, of(7), p.Status.LostClients[maxLostClients-1], "the oldest goes")
}

// TestOfTwoEnginesNoGenerationIsKnown: a list names the engine of its former server.
func TestOfTwoEnginesNoGenerationIsKnown(t *testing.T) {
	_, c := start(t, build.Engine("vol", withEpoch(7)), build.Engine("vol", withEpoch(8), func(e *longhorn.Engine) { e.Name = "vol-e-1" }))
	in := Input{Share: deletedServer(time.Second), Now: testutil.Now}
	require.NoError(t, c.gatherLost(&in))
	assert.Zero(t, in.Generation)
}

func TestWhenTheNextPodHasAList(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(in *Input)
		want   int64
	}{
		"the leader has just deleted a pod that guards its port": {want: 7},
		"a minute ago":                    {change: func(in *Input) { in.Share = deletedServer(time.Minute) }, want: 7},
		"longer ago":                      {change: func(in *Input) { in.Share = deletedServer(time.Minute + time.Second) }},
		"in the future":                   {change: func(in *Input) { in.Share = deletedServer(-time.Second) }},
		"the volume has had another one":  {change: func(in *Input) { in.Generation = 8 }},
		"the engine is not known":         {change: func(in *Input) { in.Generation = 0 }},
		"the leader has not deleted it":   {change: func(in *Input) { in.Share.Status.Server = &longhorn.ShareServer{PodUID: "pod"}; in.Generation = 0 }},
		"nothing is known of that pod":    {change: func(in *Input) { in.Share.Status.Server = nil }},
		"when it was deleted is no time":  {change: func(in *Input) { in.Share.Status.Server.DeletedAt = "soon" }},
		"there is a pod: it has its list": {change: func(in *Input) { in.Pod = &corev1.Pod{} }},
	} {
		t.Run(name, func(t *testing.T) {
			in := Input{Share: deletedServer(time.Second), Generation: 7, Now: testutil.Now}
			if tc.change != nil {
				tc.change(&in)
			}
			assert.Equal(t, tc.want, in.former())
		})
	}
}

func TestTheServerThatGuardsItsPortIsNoted(t *testing.T) {
	guarded, earlier := &types.ShareRecovery{PortGuarded: true}, &types.ShareRecovery{}
	noted := func(generation int64) *longhorn.ShareServer {
		s := &longhorn.ShareServer{PodUID: "pod"}
		if generation > 0 {
			s.Generation, s.DeletedAt = generation, types.Timestamp(now)
		}
		return s
	}
	long := &longhorn.ShareServer{PodUID: "pod", Generation: 6, DeletedAt: types.Timestamp(now.Add(-time.Minute))}
	other := &longhorn.ShareServer{PodUID: "another", Generation: 7, DeletedAt: types.Timestamp(now)}
	for name, tc := range map[string]struct {
		was     *longhorn.ShareServer
		said    *types.ShareRecovery
		change  func(s *situation)
		deleted bool
		created bool
		want    *longhorn.ShareServer
	}{
		"it says so → noted":                                   {said: guarded, want: noted(0)},
		"another pod was noted → this one":                     {was: other, said: guarded, want: noted(0)},
		"another pod was noted, and this one says nothing":     {was: other},
		"it says that it does not":                             {was: noted(0), said: earlier},
		"it was not asked → stays":                             {was: noted(0), want: noted(0)},
		"it is deleted → with the engine":                      {was: noted(0), deleted: true, want: noted(7)},
		"it is deleted again → the first time counts":          {was: long, deleted: true, want: long},
		"it is deleted, and was never asked":                   {deleted: true},
		"it is deleted, and the engine is not known":           {was: noted(0), deleted: true, change: func(s *situation) { s.Generation = 0 }, want: noted(0)},
		"a pod of an earlier release, which claims it":         {was: noted(0), said: guarded, change: func(s *situation) { s.Pod.Spec.Volumes = nil }},
		"it is gone → stays":                                   {was: noted(7), change: func(s *situation) { s.Pod = nil }, want: noted(7)},
		"the next pod is created → none: a list is given once": {was: noted(7), created: true, change: func(s *situation) { s.Pod = nil }},
	} {
		t.Run(name, func(t *testing.T) {
			s := serves()
			s.Generation, s.Recovery = 7, tc.said
			s.Share.Status.Server = tc.was
			if tc.change != nil {
				tc.change(s)
			}
			p := Plan{Status: *s.Share.Status.DeepCopy()}
			if tc.deleted {
				p.DeletePod = &Deletion{}
			}
			if tc.created {
				p.CreatePod = &corev1.Pod{}
			}
			s.noteServer(&p)
			assert.Equal(t, tc.want, p.Status.Server)
		})
	}
}

// lostX is a client in a list about the engine of generation 7.
func lostX(dropped bool, requested string) longhorn.LostClient {
	return longhorn.LostClient{ID: "uid-x", Node: "x", BootID: "boot-1", After: 7, Dropped: dropped, RemountRequestedAt: requested}
}

// carries gives the pod a list with node x.
func (s *situation) carries(after int64) *situation {
	l := types.LostClients{
		After: after, Nodes: []types.LostNode{{ClientID: "uid-x", Addresses: []string{"10.0.0.3:1"}}},
		Controls: []types.Control{{Node: "w", Address: "10.0.0.4:1"}},
	}
	s.Pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: types.LostClientsEnv, Value: l.String()}}
	return s
}

func TestAClientThatWasDroppedWronglyIsTold(t *testing.T) {
	back := fate{clientID: "uid-x", name: "x", boot: "boot-1", answers: now.Add(-time.Minute)}
	with := func(change func(f *fate)) fate { f := back; change(&f); return f }
	down := with(func(f *fate) { f.isDown, f.answers = true, time.Time{} })
	justBack := with(func(f *fate) { f.answers = now.Add(-bootLasts + time.Second) })
	booted := with(func(f *fate) { f.boot = "boot-2" })
	asked, kept, gone := types.Timestamp(now), &types.ShareRecovery{}, &types.ShareRecovery{Dropped: []string{"uid-x"}}
	for name, tc := range map[string]struct {
		client longhorn.LostClient
		said   *types.ShareRecovery
		list   int64 // of the pod
		fate   fate
		want   []longhorn.LostClient
		after  time.Duration
	}{
		"the pod with the list kept the record → forgotten":    {client: lostX(false, ""), said: kept, list: 7, fate: down},
		"the pod with the list removed the record":             {client: lostX(false, ""), said: gone, list: 7, fate: down, want: []longhorn.LostClient{lostX(true, "")}},
		"a pod without a list follows → as if it were gone":    {client: lostX(false, ""), said: kept, fate: down, want: []longhorn.LostClient{lostX(true, "")}},
		"a pod with another list follows → as if it were gone": {client: lostX(false, ""), said: kept, list: 9, fate: down, want: []longhorn.LostClient{lostX(true, "")}},
		"no pod has said anything, the node is back → waits":   {client: lostX(false, ""), list: 7, fate: back, want: []longhorn.LostClient{lostX(false, "")}},
		"a later pod says nothing of it → still gone":          {client: lostX(true, ""), said: kept, list: 7, fate: down, want: []longhorn.LostClient{lostX(true, "")}},
		"gone, the node is back in the same boot → told":       {client: lostX(true, ""), fate: back, want: []longhorn.LostClient{lostX(true, asked)}},
		"all at once": {client: lostX(false, ""), said: gone, list: 7, fate: back, want: []longhorn.LostClient{lostX(true, asked)}},
		"gone, its kubelet may not have reported a new boot": {client: lostX(true, ""), fate: justBack, want: []longhorn.LostClient{lostX(true, "")}, after: time.Second},
		"gone, the node has booted → forgotten":              {client: lostX(true, ""), fate: booted},
		"gone, the node is gone as well → forgotten":         {client: lostX(true, ""), fate: fate{}},
		"gone, the node's boot is not known → waits":         {client: lostX(true, ""), fate: with(func(f *fate) { f.boot = "" }), want: []longhorn.LostClient{lostX(true, "")}},
		"told → once":               {client: lostX(true, types.Timestamp(now.Add(-time.Minute))), fate: back, want: []longhorn.LostClient{lostX(true, types.Timestamp(now.Add(-time.Minute)))}},
		"told long ago → forgotten": {client: lostX(true, types.Timestamp(now.Add(-requestLasts-time.Second))), fate: back},
	} {
		t.Run(name, func(t *testing.T) {
			s := serves()
			s.Recovery, s.Fates = tc.said, map[string]fate{}
			if tc.fate.clientID != "" {
				s.Fates["uid-x"] = tc.fate
			}
			if tc.list > 0 {
				s.carries(tc.list)
			}
			p := Plan{Status: longhorn.ShareManagerStatus{LostClients: []longhorn.LostClient{tc.client}}}
			s.watchLost(&p)
			assert.Equal(t, tc.want, p.Status.LostClients)
			assert.Equal(t, tc.after, p.After)
			isTold := len(tc.want) > 0 && tc.want[0].RemountRequestedAt == asked
			assert.Equal(t, isTold, len(p.lossEvents()) == 1, "an Event says it")
		})
	}
}

// TestALostClientFromTheVerdictToTheRequest is a failover in which the node of the former server turns out to live.
func TestALostClientFromTheVerdictToTheRequest(t *testing.T) {
	h, c := start(t, build.ReadyNode("x", "disk-x", ready("True", "", time.Hour)), build.KubeNode("x", inBoot("10.0.0.3", "boot-1")),
		build.ReadyNode("w", "disk-w", ready("True", "", time.Hour)), build.KubeNode("w", inBoot("10.0.0.4", "boot-w")), build.Engine("vol", withEpoch(7)))
	said := types.ShareRecovery{PortGuarded: true}
	c.Ask = func(context.Context, string) (types.ShareRecovery, error) { return said, nil }
	runsOn := func(node, uid string) {
		pod, err := c.Pods.GetRO("share-manager-vol")
		require.NoError(t, err)
		pod = pod.DeepCopy()
		pod.UID, pod.Spec.NodeName, pod.Status.Phase, pod.Status.PodIP = kubetypes.UID(uid), node, corev1.PodRunning, "10.1.0.7"
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		h.Overwrite(pod)
		h.CatchUp()
	}
	sync := func() *longhorn.ShareManager {
		_, err := c.Sync(t.Context(), "vol")
		require.NoError(t, err)
		h.CatchUp()
		share, err := c.Shares.Get("vol")
		require.NoError(t, err)
		return share
	}
	sync()
	service, err := c.Services.GetRO("vol")
	require.NoError(t, err)
	service = service.DeepCopy()
	service.Spec.ClusterIP = "10.0.0.99"
	h.Overwrite(service)
	runsOn("x", "pod-1")
	sync() // it runs, and the next sync asks it
	require.Equal(t, &longhorn.ShareServer{PodUID: "pod-1"}, sync().Status.Server)

	node, err := c.Nodes.GetRO("x")
	require.NoError(t, err)
	node = node.DeepCopy()
	silent(node)
	h.Overwrite(node)
	h.CatchUp()
	share := sync()
	require.Equal(t, int64(7), share.Status.Server.Generation)
	pod, err := orNone(c.Pods.GetRO("share-manager-vol"))
	require.NoError(t, err)
	require.Nil(t, pod, "its node is down")
	share = sync()
	require.Nil(t, share.Status.Server)
	require.Equal(t, []longhorn.LostClient{lostX(false, "")}, share.Status.LostClients)
	pod, err = c.Pods.GetRO("share-manager-vol")
	require.NoError(t, err)
	require.Equal(t, []types.LostNode{{ClientID: "uid-x", Addresses: []string{"10.0.0.3:10250"}}}, listOf(pod).Nodes)
	require.Equal(t, "spec.nodeName", pod.Spec.Containers[0].Env[2].ValueFrom.FieldRef.FieldPath)

	said.Dropped = []string{"uid-x"}
	runsOn("w", "pod-2")
	sync()
	require.Equal(t, []longhorn.LostClient{lostX(true, "")}, sync().Status.LostClients)
	back := node.DeepCopy()
	back.Status.Silence = nil
	ready("True", "", time.Minute)(back)
	require.Equal(t, []string{"vol"}, c.whenNode(node, back), "the share is looked at when the node is back")
	h.Overwrite(back)
	h.CatchUp()
	require.Equal(t, []longhorn.LostClient{lostX(true, types.Timestamp(testutil.Now))}, sync().Status.LostClients)
}
