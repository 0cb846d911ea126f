package netns

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/mountns"
)

func TestInAnotherNetwork(t *testing.T) {
	if _, err := exec.LookPath("ip"); err != nil || os.Getuid() != 0 {
		mountns.Missing(t, "root, and the command ip (scripts/setup installs it)")
	}
	name := "lh-netns-" + strconv.Itoa(os.Getpid())
	out, err := exec.Command("ip", "netns", "add", name).CombinedOutput()
	require.NoError(t, err, "%s", out)
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "delete", name).Run() })
	network := func() string {
		is, err := os.Readlink("/proc/thread-self/ns/net")
		require.NoError(t, err)
		return is
	}
	here, there := network(), ""
	require.NoError(t, In("/run/netns/"+name, func() error { there = network(); return nil }))
	assert.NotEqual(t, here, there)
	assert.Equal(t, here, network(), "the caller stays where it is")

	boom := errors.New("boom")
	assert.ErrorIs(t, In("/run/netns/"+name, func() error { return boom }), boom)
	assert.ErrorIs(t, In("/run/netns/"+name+"-none", func() error { t.Error("called"); return nil }), os.ErrNotExist)
	assert.ErrorContains(t, In("/proc/self/ns/mnt", func() error { t.Error("called"); return nil }), "entering the node's network namespace /proc/self/ns/mnt")
}
