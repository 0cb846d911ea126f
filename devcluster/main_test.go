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

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/longhorn-lep/longhorn-manager/devcluster/cluster"
	"github.com/longhorn-lep/longhorn-manager/devcluster/disk"
	"github.com/longhorn-lep/longhorn-manager/devcluster/netns"
)

// The cluster starts its components by running its own program again, which
// here is the test.
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

// up makes a cluster and takes it down at the end of the test, when nothing of
// it may be left.
func up(t *testing.T, nodes, guests int) *testCluster {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: a cluster makes namespaces and mounts")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	l, err := cluster.NewLayout(filepath.Join(t.TempDir(), "cluster"), "dctest")
	if err != nil {
		t.Fatal(err)
	}
	c := &testCluster{t: t, layout: l, ctx: ctx}
	t.Cleanup(c.down)
	o := c.options(nodes)
	o.Guests = guests
	c.run(func(out *bytes.Buffer) error { return cluster.Up(ctx, l, o, out) })
	return c
}

func (c *testCluster) options(nodes int) cluster.UpOptions {
	return cluster.UpOptions{Nodes: nodes, DiskSizeBytes: 256 << 20, DiskFS: "ext4", MemoryMiB: 1024}
}

// run logs what a command printed if it fails.
func (c *testCluster) run(command func(*bytes.Buffer) error) string {
	c.t.Helper()
	var out bytes.Buffer
	if err := command(&out); err != nil {
		c.t.Fatalf("%v\n%s", err, out.String())
	}
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
	if err != nil {
		c.t.Fatal(err)
	}
	out, err := exec.CommandContext(c.ctx, args[0], args[1:]...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func (c *testCluster) client() *kubernetes.Clientset {
	c.t.Helper()
	rest, err := clientcmd.BuildConfigFromFlags("", c.layout.Kubeconfig())
	if err != nil {
		c.t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(rest)
	if err != nil {
		c.t.Fatal(err)
	}
	return client
}

func (c *testCluster) down() {
	t := c.t
	c.run(func(out *bytes.Buffer) error { return cluster.Down(context.Background(), c.layout, out) })
	if _, err := os.Stat(c.layout.Dir); !os.IsNotExist(err) {
		t.Errorf("state directory after down: %v, want that it does not exist", err)
	}
	if names, err := netns.Names("dctest-"); err != nil || len(names) > 0 {
		t.Errorf("network namespaces after down: %v, %v", names, err)
	}
	loops, err := disk.Loops()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range loops {
		if strings.Contains(l.Backing, c.layout.Dir) {
			t.Errorf("loop device after down: %+v", l)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(mounts), c.layout.Dir) {
		t.Errorf("mounts below the state directory after down:\n%s", mounts)
	}
	groups, err := filepath.Glob("/sys/fs/cgroup/*/devcluster-dctest")
	if err != nil || len(groups) > 0 {
		t.Errorf("control groups after down: %v, %v", groups, err)
	}
}

func TestClusterWithoutNodesServesTheAPI(t *testing.T) {
	c := up(t, 0, 0)
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Data: map[string]string{"k": "v"}}
	if _, err := c.client().CoreV1().ConfigMaps("default").Create(c.ctx, object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	got, err := c.client().CoreV1().ConfigMaps("default").Get(c.ctx, "x", metav1.GetOptions{})
	if err != nil || got.Data["k"] != "v" {
		t.Fatalf("read %v, %v; want k=v", got.Data, err)
	}
	audit, err := os.ReadFile(filepath.Join(c.layout.Dir, "audit.log"))
	if err != nil || !strings.Contains(string(audit), `"verb":"create","user":{"username":"admin"`) {
		t.Errorf("the audit log does not have the creation by admin: %v", err)
	}
	second := c.run(func(out *bytes.Buffer) error { return cluster.Up(c.ctx, c.layout, c.options(0), out) })
	if !strings.Contains(second, "up already") {
		t.Errorf("a second up printed %q, want that the cluster is up already", second)
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
		if err != nil {
			t.Fatalf("%v: %v: %s", command, err, out)
		}
		return out
	}
	connect := []string{"bash", "-c", "timeout 1 bash -c '</dev/tcp/172.30.0.1/6443'; echo $?"}
	if got := must(connect...); got != "0" {
		t.Fatalf("connect to the API server: exit code %s", got)
	}
	c.do(func(o *cluster.Cluster) error { return o.Cut("node-1") })
	if got := must(connect...); got != "124" {
		t.Errorf("connect when cut off: exit code %s, want 124: no answer of any kind", got)
	}
	c.do(func(o *cluster.Cluster) error { return o.Heal("node-1") })
	if got := must(connect...); got != "0" {
		t.Errorf("connect after heal: exit code %s", got)
	}

	kubelet := []string{"bash", "-c", "curl -s -m 2 http://127.0.0.1:10248/healthz; echo $?"}
	if got := must(kubelet...); got != "ok0" {
		t.Fatalf("the kubelet answers %q", got)
	}
	c.do(func(o *cluster.Cluster) error { return o.Freeze("node-1") })
	if got := must(kubelet...); got != "28" {
		t.Errorf("the kubelet of a frozen node answers %q, want 28: nothing in time", got)
	}
	c.do(func(o *cluster.Cluster) error { return o.Thaw("node-1") })
	if got := must(kubelet...); got != "ok0" {
		t.Errorf("the kubelet of a thawed node answers %q", got)
	}

	must("bash", "-c", "echo kept > /var/lib/longhorn/kept && sync -f /var/lib/longhorn && echo lost > /var/lib/longhorn/lost")
	boot := must("cat", "/proc/sys/kernel/random/boot_id")
	// Standing still does not keep a node from losing power.
	c.do(func(o *cluster.Cluster) error { return o.Freeze("node-1") })
	c.do(func(o *cluster.Cluster) error { return o.StopNode(c.ctx, "node-1", cluster.EndPowerLoss) })
	if _, err := cluster.Enter(c.layout, "node-1", []string{"true"}); err == nil {
		t.Error("a stopped node can be entered")
	}
	c.do(func(o *cluster.Cluster) error { return o.StartNode(c.ctx, "node-1") })
	if got := must("cat", "/var/lib/longhorn/kept"); got != "kept" {
		t.Errorf("synced file holds %q", got)
	}
	if out, err := c.exec("node-1", "cat", "/var/lib/longhorn/lost"); err == nil {
		t.Errorf("file that was not synced survived with %q", out)
	}
	if again := must("cat", "/proc/sys/kernel/random/boot_id"); again == boot {
		t.Error("the node has the boot id of before")
	}
}
