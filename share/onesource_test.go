package share

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/share/ganesha"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// A client keeps its record when its address changes, as when the share moves to the client's node.
func TestAClientIsKnownByAnyAddress(t *testing.T) {
	if !own(t) {
		return
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"clients": types.ShareClientsAny, types.ShareClientsReasonKey: types.ReasonClientsAllowedBySetting} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	r := startRole(t, dir, loopDevice(t, newImage(t, 64<<20)), nil)
	r.await(sayServed, 1)
	if strings.Contains(r.out.String(), "nftables") {
		t.Skipf("this kernel has no nftables:\n%s", r.out)
	}
	server, client := strconv.Itoa(r.cmd.Process.Pid), "lh-client-"+strconv.Itoa(os.Getpid())
	run(t, "ip", "netns", "add", client)
	t.Cleanup(func() { run(t, "ip", "netns", "delete", client) })
	in := func(words ...string) string {
		t.Helper()
		return run(t, "ip", append([]string{"netns", "exec", client}, words...)...)
	}
	in("ip", "link", "add", "here", "type", "veth", "peer", "name", "there", "netns", server)
	in("ip", "link", "set", "here", "up")
	for _, command := range []string{
		"ip address add 192.0.2.1/24 dev there", "ip address add fd00::1/64 dev there nodad", "ip link set there up", "ip route add default via 192.0.2.254",
		"ip route add default via fd00::fe",
	} {
		out, err := r.inside("", strings.Fields(command)...)
		require.NoError(t, err, "%s: %s", command, out)
	}
	records := func() []string {
		found, err := filepath.Glob(filepath.Join(r.o.RuntimeDirectory, "recovery", ganesha.RecordsName, "node0.*", "*"))
		require.NoError(t, err)
		for i, f := range found {
			found[i], _, _ = strings.Cut(filepath.Base(f), "-(")
		}
		return found
	}
	write := func(address, from, name string) {
		t.Helper()
		in("ip", "address", "add", from, "dev", "here", "nodad")
		defer in("ip", "address", "delete", from, "dev", "here")
		file := filepath.Join(t.TempDir(), "file")
		require.NoError(t, os.WriteFile(file, []byte(name), 0o600))
		require.Eventually(t, func() bool { // the grace period of the first start
			out := in("sh", "-c", "nfs-cp "+file+" 'nfs://"+address+"/vol/"+name+"?version=4&nfsport=2049' && echo copied || true")
			return strings.Contains(out, "copied")
		}, patience, 200*time.Millisecond)
	}
	write("192.0.2.1", "192.0.2.2/24", "one")
	require.NotEmpty(t, records(), "no client was recorded")
	write("192.0.2.1", "192.0.2.3/24", "two")
	for _, address := range records() {
		assert.Equal(t, "::ffff:169.254.99.1", address)
	}
	r.wantRead("one", "one")
	r.wantRead("two", "two")
	r.terminate()
}
