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

	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestRecordsAreAdopted(t *testing.T) {
	for _, c := range []struct{ name, record, want string }{
		{"of both families' socket", "::ffff:10.1.3.1-(20:Linux NFSv4.2 node-1)", "::ffff:169.254.99.1-(20:Linux NFSv4.2 node-1)"},
		{"of IPv4", "10.1.3.1-(3:a-b)", "169.254.99.1-(3:a-b)"},
		{"of IPv6", "fd00::7-(3:a-b)", "fd00:6c6f:6e67:686f:726e::1-(3:a-b)"},
		{"a name with another record in it", "10.1.3.1-(12:x-(3:10.1.1.1)", "169.254.99.1-(12:x-(3:10.1.1.1)"},
		{"adopted before", "::ffff:169.254.99.1-(3:abc)", ""},
		{"this machine's own", "::ffff:127.0.0.1-(3:abc)", ""},
		{"of no address", "somebody-(3:abc)", ""},
		{"no record", "node0.ABCDEF", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "recovery")
			records := filepath.Join(dir, recordsName, "node0.ABCDEF")
			require.NoError(t, os.MkdirAll(filepath.Join(records, c.record), 0o700))
			require.NoError(t, os.Symlink("node0.ABCDEF", filepath.Join(dir, recordsName, "node0")))
			require.NoError(t, adoptRecords(dir))
			want := c.want
			if want == "" {
				want = c.record
			}
			entries, err := os.ReadDir(records)
			require.NoError(t, err)
			require.Len(t, entries, 1)
			assert.Equal(t, want, entries[0].Name())
			require.NoError(t, adoptRecords(dir), "again")
		})
	}
	dir := t.TempDir()
	require.NoError(t, adoptRecords(dir), "there are none")
	records := filepath.Join(dir, recordsName, "node0.ABCDEF")
	for _, name := range []string{"10.1.3.1-(3:abc)", "169.254.99.1-(3:abc)"} {
		require.NoError(t, os.MkdirAll(filepath.Join(records, name, name), 0o700))
	}
	require.Error(t, adoptRecords(dir))
	assert.DirExists(t, filepath.Join(records, "169.254.99.1-(3:abc)", "169.254.99.1-(3:abc)"), "a record that is there is not replaced")
}

// A client keeps its record when it is seen at another address than before, as when the share moves to the client's node.
func TestAClientIsKnownWhateverItsAddress(t *testing.T) {
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
		found, err := filepath.Glob(filepath.Join(r.o.RuntimeDirectory, "recovery", recordsName, "node0.*", "*"))
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
