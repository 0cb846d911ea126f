package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/devcluster/agent"
	"github.com/longhorn-lep/longhorn-manager/devcluster/cgroup"
	"github.com/longhorn-lep/longhorn-manager/devcluster/cluster"
	"github.com/longhorn-lep/longhorn-manager/devcluster/config"
	"github.com/longhorn-lep/longhorn-manager/devcluster/dm"
	"github.com/longhorn-lep/longhorn-manager/devcluster/image"
	"github.com/longhorn-lep/longhorn-manager/devcluster/mountinfo"
	"github.com/longhorn-lep/longhorn-manager/devcluster/proc"
)

const guest = "guest-1"

// TestGuest tests all operations on one cluster with one guest.
func TestGuest(t *testing.T) {
	if testing.Short() {
		t.Skip("takes about a minute")
	}
	if err := cluster.CheckGuests(os.Getenv(guestKernel)); err != nil && os.Geteuid() == 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	c := up(t, 0, 1)
	for _, step := range []struct {
		name string
		test func(*testing.T, *testCluster)
	}{
		{"a command has streams and exit code", guestExec},
		{"version 2 of cgroups", guestCgroups},
		{"this machine is read-only", guestSeesReadOnly},
		{"a pod runs", guestRunsPod},
		{"an address is forwarded", guestForwards},
		{"cut off and healed", guestIsCut},
		{"frozen and thawed", guestIsFrozen},
		{"a disk is slow, fails and hangs, and the other notices nothing", guestDisks},
		{"a loss of power", guestLosesPower},
		{"a loss of power and of the disk's cache", guestLosesCache},
		{"removed", guestIsRemoved},
	} {
		if !t.Run(step.name, func(t *testing.T) {
			step.test(t, &testCluster{t: t, layout: c.layout, ctx: c.ctx})
		}) {
			for _, log := range []string{"machine.log", "kubelet.log"} {
				raw, _ := os.ReadFile(filepath.Join(c.layout.Dir, "nodes", guest, "log", log))
				t.Logf("%s:\n%s", log, raw[max(0, len(raw)-4000):])
			}
			return
		}
	}
}

// must runs a shell script on the guest.
func (c *testCluster) must(script string) string {
	c.t.Helper()
	out, err := c.exec(guest, "sh", "-ec", script)
	require.NoError(c.t, err, "%s: %s", script, out)
	return out
}

func guestExec(t *testing.T, c *testCluster) {
	args, err := cluster.Enter(c.layout, guest, []string{"sh", "-c", "cat; echo bad >&2; exit 7"})
	require.NoError(t, err)
	cmd := exec.CommandContext(c.ctx, args[0], args[1:]...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader("input"), &stdout, &stderr
	err = cmd.Run()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	assert.Equal(t, 7, exit.ExitCode())
	assert.Equal(t, "input", stdout.String())
	assert.Equal(t, "bad\n", stderr.String())
	out, err := c.exec(guest, "no-such-program")
	assert.Error(t, err, "a program that does not exist ran: %s", out)
	// Programs that a command leaves in the background continue to run, and the command does not wait for them.
	c.must("mkfifo /run/ask; { read word < /run/ask; echo got $word > /run/ask; } &")
	assert.Equal(t, "got this", c.must("echo this > /run/ask; cat /run/ask"), "the background program answers")
	release := c.must("uname -r")
	assert.True(t, strings.HasPrefix(release, "6."), release)
	assert.NotEqual(t, c.hostRelease(), release)
}

func (c *testCluster) hostRelease() string {
	out, err := exec.Command("uname", "-r").Output()
	require.NoError(c.t, err)
	return strings.TrimSpace(string(out))
}

func guestCgroups(_ *testing.T, c *testCluster) {
	c.must(config.NodeBinary + " component cgroup-walk now")
}

// cgroupWalk tests all operations on a group where only version 2 is mounted.
func cgroupWalk() int {
	if err := walkCgroup(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func walkCgroup() error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	mounts, err := mountinfo.Read("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	if slices.ContainsFunc(mounts, func(m mountinfo.Mount) bool { return m.FSType == "cgroup" }) {
		return errors.New("version 1 is mounted")
	}
	group, err := cgroup.Create("walk/inner", mounts)
	if err != nil {
		return err
	}
	controllers, err := os.ReadFile("/sys/fs/cgroup/walk/inner/cgroup.controllers")
	if err != nil || !strings.Contains(string(controllers), "memory") {
		return fmt.Errorf("the group's controllers are %q, %w", controllers, err)
	}
	cmd := exec.Command("cat", "/dev/zero")
	zeros, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return err
	}
	if err := group.Add(cmd.Process.Pid); err != nil {
		return err
	}
	if got := group.Processes(); !slices.Equal(got, []int{cmd.Process.Pid}) {
		return fmt.Errorf("processes %v, want %d", got, cmd.Process.Pid)
	}
	if err := group.Freeze(); err != nil {
		return err
	}
	events, err := os.ReadFile("/sys/fs/cgroup/walk/inner/cgroup.events")
	if err != nil || !strings.Contains(string(events), "frozen 1") {
		return fmt.Errorf("after freezing: events %q, %w", events, err)
	}
	if err := group.Thaw(); err != nil {
		return err
	}
	// More data than the pipe holds can only come from a running program.
	if _, err := io.CopyN(io.Discard, zeros, 1<<17); err != nil {
		return fmt.Errorf("after thawing: %w", err)
	}
	if err := errors.Join(group.Freeze(), group.KillFrozen()); err != nil {
		return err
	}
	_ = cmd.Wait() // killed
	return cgroup.Find("walk", mounts).Remove(ctx)
}

func guestSeesReadOnly(t *testing.T, c *testCluster) {
	mark := filepath.Join(c.layout.Dir, "mark")
	require.NoError(t, os.WriteFile(mark, []byte("outside"), 0o600))
	c.must("mkdir -p /run/machine && mount -t hostfs none /run/machine -o /")
	got := c.must("cat /run/machine" + mark)
	assert.Equal(t, "outside", got, "the guest reads %q of this machine's file", got)
	for _, attempt := range []string{
		"echo inside > /run/machine" + mark,
		"rm /run/machine" + mark,
		"touch /run/machine/tmp/devcluster-guest-was-here",
		"touch /run/machine/dev/shm/../devcluster-guest-was-here",
		"mkdir /run/machine/root/devcluster-guest-was-here",
		"mount -o remount,rw /run/machine && touch /run/machine" + mark + "2",
	} {
		out, err := c.exec(guest, "sh", "-c", attempt)
		assert.Error(t, err, attempt)
		assert.Contains(t, out, "Read-only file system", attempt)
	}
	data, err := os.ReadFile(mark)
	require.NoError(t, err)
	assert.Equal(t, "outside", string(data), "this machine's file")
	require.NoError(t, os.Remove(mark))
	c.must("umount /run/machine")
}

func guestRunsPod(t *testing.T, c *testCluster) {
	l := image.NewLayer()
	require.NoError(t, l.File("/bin/busybox", "/bin/busybox"))
	tar := filepath.Join(t.TempDir(), "busybox.tar")
	require.NoError(t, image.Build(tar, image.Config{Name: "localhost/busybox:dev", Entrypoint: []string{"/bin/busybox"}}, "", l))
	c.do(func(o *cluster.Cluster) error { return o.LoadImages(c.ctx, []string{tar}) })
	pods := c.client().CoreV1().Pods("default")
	_, err := pods.Create(c.ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod"},
		Spec: corev1.PodSpec{
			NodeSelector:  map[string]string{config.KernelLabel: cluster.KernelUML},
			RestartPolicy: corev1.RestartPolicyNever,
			Containers: []corev1.Container{{
				Name: "c", Image: "localhost/busybox:dev", ImagePullPolicy: corev1.PullNever,
				Args: []string{"sh", "-c", "echo on $(busybox uname -r)"},
			}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	err = proc.WaitFor(c.ctx, 200*time.Millisecond, "the pod to succeed", func() error {
		pod, err := pods.Get(c.ctx, "pod", metav1.GetOptions{})
		if err == nil && pod.Status.Phase != corev1.PodSucceeded {
			err = fmt.Errorf("the pod is %s: %+v", pod.Status.Phase, pod.Status.ContainerStatuses)
		}
		return err
	})
	require.NoError(t, err)
	log, err := pods.GetLogs("pod", &corev1.PodLogOptions{}).DoRaw(c.ctx)
	require.NoError(t, err)
	assert.Equal(t, "on "+c.must("uname -r"), strings.TrimSpace(string(log)), "the pod says %q", log)
}

// The API server's service has an address only through the guest's own kube-proxy.
func guestForwards(t *testing.T, c *testCluster) {
	var address string
	c.do(func(o *cluster.Cluster) (err error) {
		address, err = o.Forward(c.ctx, guest, config.APIServiceIP+":443")
		return err
	})
	conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // the test checks the peer's name
	require.NoError(t, err)
	defer conn.Close()
	assert.Equal(t, "kube-apiserver", conn.ConnectionState().PeerCertificates[0].Subject.CommonName)
}

func guestIsCut(t *testing.T, c *testCluster) {
	const connect = "bash -c '</dev/tcp/172.30.0.1/6443' || echo $?"
	require.Empty(t, c.must("timeout 20 "+connect), "connect to the API server")
	c.do(func(o *cluster.Cluster) error { return o.Cut(guest) })
	assert.Equal(t, "124", c.must("timeout 1 "+connect), "connect when cut off: no answer of any kind")
	c.do(func(o *cluster.Cluster) error { return o.Heal(guest) })
	assert.Empty(t, c.must("timeout 20 "+connect), "connect after heal")
}

func (c *testCluster) status() string {
	c.t.Helper()
	return c.run(func(out *bytes.Buffer) error { return cluster.Status(c.ctx, c.layout, out) })
}

func guestIsFrozen(t *testing.T, c *testCluster) {
	before := c.guestTime()
	since := time.Now()
	c.do(func(o *cluster.Cluster) error { return o.Freeze(guest) })
	assert.Contains(t, c.status(), "frozen", "the status does not say frozen")
	ctx, cancel := context.WithTimeout(c.ctx, time.Second)
	defer cancel()
	address := fmt.Sprintf("%s:%d", config.ManagementIP(1), config.AgentPort)
	out, err := agent.Output(ctx, c.layout.Name+"-net", address, "date")
	assert.Error(t, err, "a frozen guest answers %q", out)
	c.do(func(o *cluster.Cluster) error { return o.Thaw(guest) })
	passed := time.Since(since)
	assert.Greater(t, c.guestTime()-before+10*time.Millisecond, passed, "the guest's clock stood still with it")
}

// guestTime returns the time of the guest's clock. That clock starts with this machine's time and is not set again when
// this machine's clock is.
func (c *testCluster) guestTime() time.Duration {
	c.t.Helper()
	var nanoseconds int64
	_, err := fmt.Sscan(c.must("date +%s%N"), &nanoseconds)
	require.NoError(c.t, err)
	return time.Duration(nanoseconds)
}

func (c *testCluster) disk(name string, words ...string) {
	c.t.Helper()
	state, err := dm.ParseState(words)
	require.NoError(c.t, err)
	c.do(func(o *cluster.Cluster) error { return o.SetDisk(c.ctx, guest, name, state) })
}

func (c *testCluster) disks() string {
	c.t.Helper()
	return c.run(func(out *bytes.Buffer) error { return cluster.ShowDisks(c.layout, guest, out) })
}

func guestDisks(t *testing.T, c *testCluster) {
	// Not at the start: the file system's data there must be written out before a direct read, and that write may fail.
	const readSecond = "dd if=/dev/mapper/second of=/dev/null bs=4k skip=3000 count=3 iflag=direct 2>&1"
	const writeSecond = "dd if=/dev/zero of=/disk2/file bs=4k count=1 oflag=direct conv=notrunc 2>&1"
	c.do(func(o *cluster.Cluster) error { return o.AddDisk(c.ctx, guest, "second", "/disk2", c.options(0)) })
	c.must(writeSecond + " && sync -f /disk2")

	c.disk("second", "slow", "300")
	begin := time.Now()
	c.must(readSecond)
	assert.GreaterOrEqual(t, time.Since(begin), 900*time.Millisecond)
	got, want := c.disks(), "data /var/lib/longhorn ok\nsecond /disk2 slow 300\n"
	assert.Equal(t, want, got)

	c.disk("second", "fail")
	out, err := c.exec(guest, "sh", "-c", readSecond)
	require.Error(t, err)
	assert.Contains(t, out, "Input/output error", "read of a disk that fails")
	c.disk("second", "fail-writes")
	c.must(readSecond)
	c.disk("second", "ok")
	c.must(writeSecond)

	c.disk("second", "hang")
	c.must("mkfifo /run/read; { " + readSecond + " >/dev/null && echo whole > /run/read; } >/dev/null 2>&1 &")
	c.must("echo other > /var/lib/longhorn/other && sync /var/lib/longhorn/other")
	out, err = c.exec(guest, "sh", "-c", "timeout 1 cat /run/read; test $? = 124")
	assert.NoError(t, err, "a read of a disk that hangs ended with %q", out)
	c.disk("second", "ok")
	assert.Equal(t, "whole", c.must("cat /run/read"))
}

// guestLosesPower also makes a disk hang, which must not prevent the power loss.
func guestLosesPower(t *testing.T, c *testCluster) {
	args, err := cluster.Enter(c.layout, guest, []string{
		"sh", "-c", "cd /var/lib/longhorn; while :; do n=$((n+1)); echo $n >> records; sync records && echo $n; done",
	})
	require.NoError(t, err)
	writer := exec.CommandContext(c.ctx, args[0], args[1:]...)
	acknowledged, err := writer.StdoutPipe()
	if err == nil {
		err = writer.Start()
	}
	require.NoError(t, err)
	c.disk("second", "hang")
	last, some := "", make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		lines := bufio.NewScanner(acknowledged)
		for lines.Scan() {
			if last = lines.Text(); last == "50" {
				close(some)
			}
		}
	}()
	select {
	case <-some:
	case <-ended:
		t.Fatal("the writer ended")
	}
	c.do(func(o *cluster.Cluster) error { return o.StopNode(c.ctx, guest, cluster.EndPowerLoss) })
	<-ended
	assert.Error(t, writer.Wait(), "a command on a node that lost power succeeds")
	_, err = cluster.Enter(c.layout, guest, []string{"true"})
	assert.Error(t, err, "a stopped node can be entered")
	c.do(func(o *cluster.Cluster) error { return o.StartNode(c.ctx, guest) })
	got, want := c.must("head -n "+last+" /var/lib/longhorn/records"), c.must("seq "+last)
	assert.Equal(t, want, got, "of %s acknowledged records these are there", last)
	got, want = c.disks(), "data /var/lib/longhorn ok\nsecond /disk2 ok\n"
	assert.Equal(t, want, got)
	c.must("ctr --namespace k8s.io images check name==localhost/busybox:dev | grep complete")
}

func guestLosesCache(t *testing.T, c *testCluster) {
	c.must("echo kept > /var/lib/longhorn/kept && sync /var/lib/longhorn/kept")
	c.disk(cluster.DataDisk, "drop-writes")
	c.must("echo acknowledged > /var/lib/longhorn/dropped && sync /var/lib/longhorn/dropped")
	c.do(func(o *cluster.Cluster) error { return o.StopNode(c.ctx, guest, cluster.EndPowerLoss) })
	c.do(func(o *cluster.Cluster) error { return o.StartNode(c.ctx, guest) })
	assert.Equal(t, "kept", c.must("cat /var/lib/longhorn/kept"))
	out, err := c.exec(guest, "cat", "/var/lib/longhorn/dropped")
	assert.Error(t, err, "what the disk dropped is there: %q", out)
}

func guestIsRemoved(t *testing.T, c *testCluster) {
	c.do(func(o *cluster.Cluster) error { return o.RemoveNode(c.ctx, guest) })
	nodes, err := c.client().CoreV1().Nodes().List(c.ctx, metav1.ListOptions{})
	require.NoError(t, err)
	assert.Empty(t, nodes.Items, "after its removal there are nodes")
}
