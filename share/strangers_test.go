package share

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/nftables"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/util/netns"
)

// TestAShareRefusesStrangers: the process passes the list to the kernel, at its start and later.
func TestAShareRefusesStrangers(t *testing.T) {
	if !own(t) {
		return
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "clients")
	require.NoError(t, os.WriteFile(file, []byte("192.0.2.9"), 0o600))
	r := startRole(t, dir, loopDevice(t, newImage(t, 64<<20)), nil)
	r.await("Only listed clients may mount the share", 1)
	r.await(sayServed, 1)
	r.wantRules("192.0.2.9")
	require.NoError(t, os.WriteFile(file, []byte("192.0.2.9\n192.0.2.1"), 0o600))
	r.await("Only listed clients may mount the share", 2)
	r.wantRules("192.0.2.1", "192.0.2.9")
	r.write("file", "data") // from its own network
	r.wantRead("file", "data")
	r.terminate()
}

// wantRules wants these hosts in the set of the role's network.
func (r *role) wantRules(hosts ...string) {
	r.t.Helper()
	var got []string
	require.NoError(r.t, netns.In(fmt.Sprintf("/proc/%d/ns/net", r.cmd.Process.Pid), func() error {
		var err error
		got, err = listedHosts()
		return err
	}))
	assert.ElementsMatch(r.t, hosts, got)
}

// listedHosts are the IPv4 addresses in the set of this network.
func listedHosts() ([]string, error) {
	c, err := nftables.New()
	if err != nil {
		return nil, err
	}
	table := &nftables.Table{Family: nftables.TableFamilyINet, Name: "longhorn-share-clients"}
	set, err := c.GetSetByName(table, fmt.Sprintf("hosts%d", unix.NFPROTO_IPV4))
	if err != nil {
		return nil, err
	}
	elements, err := c.GetSetElements(set)
	var hosts []string
	for _, e := range elements {
		hosts = append(hosts, net.IP(e.Key).String())
	}
	return hosts, err
}
