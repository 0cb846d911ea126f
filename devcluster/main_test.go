package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/longhorn-lep/longhorn-manager/devcluster/cluster"
	"github.com/longhorn-lep/longhorn-manager/devcluster/disk"
	"github.com/longhorn-lep/longhorn-manager/devcluster/machine"
	"github.com/longhorn-lep/longhorn-manager/devcluster/netns"
)

// The cluster starts its components by running its own program again, which is the test binary here.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "component" {
		if os.Args[2] == "cgroup-walk" {
			os.Exit(cgroupWalk())
		}
		os.Exit(runComponent(os.Args[2], os.Args[3:]))
	}
	os.Exit(m.Run())
}

type testCluster struct {
	t      *testing.T
	layout cluster.Layout
	ctx    context.Context
}

// up creates a cluster, and removes it at the end of the test, after which nothing of it may be left.
func up(t *testing.T, nodes, guests int) *testCluster {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: a cluster makes namespaces and mounts")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	l, err := cluster.NewLayout(filepath.Join(t.TempDir(), "cluster"), "dctest")
	require.NoError(t, err)
	c := &testCluster{t: t, layout: l, ctx: ctx}
	t.Cleanup(c.down)
	o := c.options(nodes)
	o.Guests = guests
	c.run(func(out *bytes.Buffer) error { return cluster.Up(ctx, l, o, out) })
	return c
}

func (c *testCluster) options(nodes int) cluster.UpOptions {
	return cluster.UpOptions{Nodes: nodes, DiskSizeBytes: 256 << 20, DiskFS: "ext4", MemoryMiB: 1024, KernelDir: os.Getenv(guestKernel)}
}

// run runs a command, and logs its output if it fails.
func (c *testCluster) run(command func(*bytes.Buffer) error) string {
	c.t.Helper()
	var out bytes.Buffer
	require.NoError(c.t, command(&out), out.String())
	return out.String()
}

// do runs a command that changes the cluster.
func (c *testCluster) do(command func(*cluster.Cluster) error) {
	c.t.Helper()
	c.run(func(out *bytes.Buffer) error {
		opened, err := cluster.Open(c.layout, out)
		if err != nil {
			return err
		}
		defer opened.Close()
		return command(opened)
	})
}

func (c *testCluster) exec(node string, command ...string) (string, error) {
	c.t.Helper()
	args, err := cluster.Enter(c.layout, node, command)
	require.NoError(c.t, err)
	out, err := exec.CommandContext(c.ctx, args[0], args[1:]...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func (c *testCluster) client() *kubernetes.Clientset {
	c.t.Helper()
	rest, err := clientcmd.BuildConfigFromFlags("", c.layout.Kubeconfig())
	require.NoError(c.t, err)
	client, err := kubernetes.NewForConfig(rest)
	require.NoError(c.t, err)
	return client
}

func (c *testCluster) down() {
	t := c.t
	c.run(func(out *bytes.Buffer) error { return cluster.Down(context.Background(), c.layout, out) })
	_, err := os.Stat(c.layout.Dir)
	assert.ErrorIs(t, err, os.ErrNotExist, "state directory after down")
	names, err := netns.Names("dctest-")
	require.NoError(t, err)
	assert.Empty(t, names, "network namespaces after down")
	loops, err := disk.Loops()
	require.NoError(t, err)
	for _, l := range loops {
		assert.NotContains(t, l.Backing, c.layout.Dir, "loop device after down")
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	assert.NotContains(t, string(mounts), c.layout.Dir, "mounts below the state directory after down")
	groups, err := filepath.Glob("/sys/fs/cgroup/*/devcluster-dctest")
	require.NoError(t, err)
	assert.Empty(t, groups, "control groups after down")
}

func TestClusterWithoutNodesServesTheAPI(t *testing.T) {
	c := up(t, 0, 0)
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Data: map[string]string{"k": "v"}}
	_, err := c.client().CoreV1().ConfigMaps("default").Create(c.ctx, object, metav1.CreateOptions{})
	require.NoError(t, err)
	got, err := c.client().CoreV1().ConfigMaps("default").Get(c.ctx, "x", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, "v", got.Data["k"])
	audit, err := os.ReadFile(filepath.Join(c.layout.Dir, "audit.log"))
	require.NoError(t, err)
	assert.Contains(t, string(audit), `"verb":"create","user":{"username":"admin"`, "the audit log does not have the creation by admin")
	second := c.run(func(out *bytes.Buffer) error { return cluster.Up(c.ctx, c.layout, c.options(0), out) })
	assert.Contains(t, second, "up already", "a second up printed")
}

// TestAPIServerIsTakenAway: the API server does not answer until it gets the order to run, and then still has its data.
func TestAPIServerIsTakenAway(t *testing.T) {
	c := up(t, 0, 0)
	answer := func() error {
		ctx, cancel := context.WithTimeout(c.ctx, 2*time.Second)
		defer cancel()
		_, err := c.client().CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{})
		return err
	}
	require.NoError(t, answer())
	for _, order := range []machine.Order{machine.OrderFreeze, machine.OrderStop, machine.OrderFreeze} {
		c.do(func(o *cluster.Cluster) error { return o.OrderAPIServer(c.ctx, order) })
		time.Sleep(2 * time.Second) // in this time the supervisor would have started it again
		require.Error(t, answer(), "told to %s, it answers", order)
		var status bytes.Buffer
		require.NoError(t, cluster.Status(c.ctx, c.layout, &status))
		assert.Contains(t, status.String(), "The API server was told to "+string(order))
		c.do(func(o *cluster.Cluster) error { return o.OrderAPIServer(c.ctx, machine.OrderRun) })
		require.NoError(t, answer())
	}
}

func TestNodeIsCutOffHealedAndSurvivesPowerLoss(t *testing.T) {
	if testing.Short() {
		t.Skip("takes about 20 s")
	}
	c := up(t, 1, 0)
	must := func(command ...string) string {
		t.Helper()
		out, err := c.exec("node-1", command...)
		require.NoError(t, err, "%v: %s", command, out)
		return out
	}
	connect := []string{"bash", "-c", "timeout 1 bash -c '</dev/tcp/172.30.0.1/6443'; echo $?"}
	require.Equal(t, "0", must(connect...), "connect to the API server")
	c.do(func(o *cluster.Cluster) error { return o.Cut("node-1") })
	assert.Equal(t, "124", must(connect...), "connect when cut off: no answer of any kind")
	c.do(func(o *cluster.Cluster) error { return o.Heal("node-1") })
	assert.Equal(t, "0", must(connect...), "connect after heal")

	kubelet := []string{"bash", "-c", "curl -s -m 2 http://127.0.0.1:10248/healthz; echo $?"}
	require.Equal(t, "ok0", must(kubelet...), "the kubelet answers")
	c.do(func(o *cluster.Cluster) error { return o.Freeze("node-1") })
	assert.Equal(t, "28", must(kubelet...), "the kubelet of a frozen node answers: nothing in time")
	c.do(func(o *cluster.Cluster) error { return o.Thaw("node-1") })
	assert.Equal(t, "ok0", must(kubelet...), "the kubelet of a thawed node answers")

	must("bash", "-c", "echo kept > /var/lib/longhorn/kept && sync -f /var/lib/longhorn && echo lost > /var/lib/longhorn/lost")
	boot := must("cat", "/proc/sys/kernel/random/boot_id")
	// A suspended node can lose power, too.
	c.do(func(o *cluster.Cluster) error { return o.Freeze("node-1") })
	c.do(func(o *cluster.Cluster) error { return o.StopNode(c.ctx, "node-1", cluster.EndPowerLoss) })
	_, err := cluster.Enter(c.layout, "node-1", []string{"true"})
	assert.Error(t, err, "a stopped node can be entered")
	c.do(func(o *cluster.Cluster) error { return o.StartNode(c.ctx, "node-1") })
	assert.Equal(t, "kept", must("cat", "/var/lib/longhorn/kept"))
	out, err := c.exec("node-1", "cat", "/var/lib/longhorn/lost")
	assert.Error(t, err, "file that was not synced survived with %q", out)
	assert.NotEqual(t, boot, must("cat", "/proc/sys/kernel/random/boot_id"), "the node has the boot id of before")
}
