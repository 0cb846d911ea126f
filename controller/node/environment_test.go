package node

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/record"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/mountns"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestEnvironmentConditions(t *testing.T) {
	whole := Environment{RootMount: "master:1", Devices: []string{"fuse", "loop-control"}, Filesystems: []string{"ext4", "nfs4"}}
	with := func(change func(*Environment)) Environment {
		e := whole
		change(&e)
		return e
	}
	cases := []struct {
		name string
		e    Environment
		want [3]string // MountPropagation, KernelModulesLoaded, NFSClientInstalled
		text string
	}{
		{"all there → all True", whole, [3]string{"True", "True", "True"}, ""},
		{"mounts go both ways → True", with(func(e *Environment) { e.RootMount = "shared:7" }), [3]string{"True", "True", "True"}, ""},
		{"a slave that hands on → True", with(func(e *Environment) { e.RootMount = "shared:7 master:1" }), [3]string{"True", "True", "True"}, ""},
		{"a private mount → no propagation", with(func(e *Environment) { e.RootMount = "" }), [3]string{"False NoMountPropagationSupport", "True", "True"}, "HostToContainer"},
		{"an unbindable mount → no propagation", with(func(e *Environment) { e.RootMount = "unbindable" }), [3]string{"False NoMountPropagationSupport", "True", "True"}, ""},
		{"no loop devices → named", with(func(e *Environment) { e.Devices = []string{"fuse"} }), [3]string{"True", "False KernelModulesNotLoaded", "True"}, "lacks /dev/loop-control, "},
		{"neither fuse nor loop → both named", with(func(e *Environment) { e.Devices = nil }), [3]string{"True", "False KernelModulesNotLoaded", "True"}, "lacks /dev/fuse and /dev/loop-control, "},
		{"no NFS client → told", with(func(e *Environment) { e.Filesystems = []string{"nfs", "ext4"} }), [3]string{"True", "True", "False NFSClientIsNotFound"}, "ReadWriteMany"},
		{"the kernel cannot be asked → told", with(func(e *Environment) { e.Err = errors.New("boom") }), [3]string{"True", "False CheckKernelConfigFailed", "False CheckKernelConfigFailed"}, "boom"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			in := input(func(in *Input) { in.Environment = &c.e })
			p := plan(in, testutil.Now)
			text := ""
			for i, conditionType := range []string{"MountPropagation", "KernelModulesLoaded", "NFSClientInstalled"} {
				got := conditionOf(p.Status.Conditions, conditionType)
				assert.Equal(t, c.want[i], strings.TrimSpace(string(got.Status)+" "+got.Reason), "%s = %+v", conditionType, got)
				text += got.Message
			}
			assert.Contains(t, text, c.text)
			assert.Len(t, p.Flipped, 3)
			again := in
			again.Node = in.Node.DeepCopy()
			again.Node.Status = p.Status
			second := plan(again, testutil.Now)
			assert.Empty(t, second.Flipped, "at rest")
		})
	}
}

func TestAddressesStayWhereTheyCouldNotBeRead(t *testing.T) {
	in := input(func(in *Input) { in.Environment = &Environment{Addresses: []string{"10.0.0.1", "10.1.0.1"}} })
	p := plan(in, testutil.Now)
	assert.Equal(t, []string{"10.0.0.1", "10.1.0.1"}, p.Status.Addresses)
	in.Node = in.Node.DeepCopy()
	in.Node.Status, in.Environment = p.Status, &Environment{}
	assert.Equal(t, []string{"10.0.0.1", "10.1.0.1"}, plan(in, testutil.Now).Status.Addresses)
}

func TestTheAddressesOfANetworkAreThoseThatOthersSee(t *testing.T) {
	name := "lh-addresses-" + strconv.Itoa(os.Getpid())
	run := func(words ...string) {
		t.Helper()
		out, err := exec.Command("ip", words...).CombinedOutput()
		require.NoError(t, err, "ip %v: %s", words, out)
	}
	if os.Getuid() != 0 {
		mountns.Missing(t, "root")
	}
	run("netns", "add", name)
	t.Cleanup(func() { run("netns", "delete", name) })
	run("-n", name, "link", "set", "lo", "up")
	for _, link := range []string{"eth0", "cni0", "kube-ipvs0"} {
		run("-n", name, "link", "add", link, "type", "bridge")
		run("-n", name, "link", "set", link, "up")
	}
	run("-n", name, "address", "add", "10.0.0.7/24", "dev", "eth0")
	run("-n", name, "address", "add", "fd00::7/64", "dev", "eth0", "nodad")
	run("-n", name, "address", "add", "10.1.3.1/24", "dev", "cni0")
	run("-n", name, "address", "add", "169.254.7.7/24", "dev", "cni0")
	run("-n", name, "address", "add", "10.96.0.1/32", "dev", "kube-ipvs0")
	got, err := networkAddresses("/run/netns/" + name)
	require.NoError(t, err)
	assert.Equal(t, []string{"10.0.0.7", "10.1.3.1", "fd00::7"}, got)
	_, err = networkAddresses("/run/netns/" + name + "-none")
	assert.ErrorIs(t, err, os.ErrNotExist)
}

func TestDeviceSuccessionIsWhatTheDataPlaneSays(t *testing.T) {
	before := longhorn.Condition{Type: "DeviceSuccession", Status: longhorn.ConditionTrue}
	for _, c := range []struct {
		name string
		says DataPlane
		want string
		text string
	}{
		{"devices are kept → True", DataPlane{Answers: true, DevicesKept: true}, "True", "survive a restart"},
		{"they are not → False, and what follows", DataPlane{Answers: true}, "False KernelTooOld", "Linux 6.9"},
		{"no answer → as it was", DataPlane{}, "True", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := input(func(in *Input) {
				in.DataPlane = c.says
				in.Node.Status.Conditions = append(in.Node.Status.Conditions, before)
			})
			got := conditionOf(plan(in, testutil.Now).Status.Conditions, "DeviceSuccession")
			assert.Equal(t, c.want, strings.TrimSpace(string(got.Status)+" "+got.Reason))
			assert.Contains(t, got.Message, c.text)
		})
	}
}

func TestTheKindOfDevicesIsWhatTheDataPlaneSays(t *testing.T) {
	for _, c := range []struct {
		name string
		says DataPlane
		want string
		text string
	}{
		{"the kernel's NBD client → True", DataPlane{Answers: true, DeviceKind: "nbd"}, "True", "the kernel's NBD client"},
		{"FUSE → False, and why", DataPlane{Answers: true, DeviceKind: "fuse", WhyNoNBD: "no module nbd"}, "False KernelNBDClientNotUsed", "no module nbd"},
		{"a data plane that does not say → none", DataPlane{Answers: true}, "", ""},
		{"no answer → none yet", DataPlane{DeviceKind: "nbd"}, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := conditionOf(plan(input(func(in *Input) { in.DataPlane = c.says }), testutil.Now).Status.Conditions, "KernelNBDClient")
			assert.Equal(t, c.want, strings.TrimSpace(string(got.Status)+" "+got.Reason))
			assert.Contains(t, got.Message, c.text)
		})
	}
}

func conditionOf(list []longhorn.Condition, conditionType string) longhorn.Condition {
	for _, c := range list {
		if c.Type == conditionType {
			return c
		}
	}
	return longhorn.Condition{}
}

func TestMountOfIsTheOneOnTop(t *testing.T) {
	mounts := []*mountinfo.Info{
		{Mountpoint: "/", Optional: "shared:1"},
		{Mountpoint: "/host", Optional: "master:2"},
		{Mountpoint: "/host", Optional: "master:3"},
		{Mountpoint: "/", Optional: "shared:9"},
	}
	assert.Equal(t, "master:3", mountOf(mounts))
	assert.Empty(t, mountOf(nil))
}

func TestTheEnvironmentOfThisMachineIsRead(t *testing.T) {
	e := HostDisks{Root: "/"}.Environment()
	require.NoError(t, e.Err)
	assert.Contains(t, e.Filesystems, "tmpfs")
	for _, d := range e.Devices {
		assert.Contains(t, NeededDevices, d, "device %s was not asked about", d)
	}
}

func TestWhatNothingNeedsIsNoWarning(t *testing.T) {
	recorder := record.NewFakeRecorder(10)
	recordFlips(recorder, build.Node("n"), []longhorn.Condition{
		{Type: types.ConditionNFSClientInstalled, Status: longhorn.ConditionFalse, Message: "there is no client"},
		{Type: types.ConditionKernelModulesLoaded, Status: longhorn.ConditionFalse, Message: "there is no device"},
		{Type: types.ConditionNFSClientInstalled, Status: longhorn.ConditionTrue, Message: "there is one"},
	})
	close(recorder.Events)
	var told []string
	for e := range recorder.Events {
		told = append(told, e)
	}
	assert.Equal(t, []string{"Warning NotKernelModulesLoaded there is no device", "Normal NFSClientInstalled there is one"}, told)
}
