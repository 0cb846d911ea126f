package mount

import (
	"errors"
	"net/netip"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	mountutils "k8s.io/mount-utils"
)

func TestParseNFSOptions(t *testing.T) {
	for text, want := range map[string]NFSOptions{
		"vers=4.1":                         {data: []string{"vers=4.1"}},
		"vers=4.2, hard ,timeo=600":        {data: []string{"vers=4.2", "hard", "timeo=600"}},
		"nfsvers=4,noatime,ro":             {data: []string{"nfsvers=4"}, flags: unix.MS_NOATIME | unix.MS_RDONLY},
		"ro,rw,vers=4.0,_netdev,port=2050": {data: []string{"vers=4.0", "port=2050"}},
	} {
		got, err := ParseNFSOptions(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, got, text)
	}
	for text, want := range map[string]string{
		"hard":                     "must contain vers=4, vers=4.0, vers=4.1 or vers=4.2: shares are served only over NFS version 4",
		"vers=3":                   `contains "vers=3"; it must contain vers=4, vers=4.0, vers=4.1 or vers=4.2 once`,
		"vers=4.1,vers=4.2":        `contains "vers=4.2"; it must contain vers=4, vers=4.0, vers=4.1 or vers=4.2 once`,
		"vers=4.1,addr=10.0.0.1":   "contains the option addr, which only the driver may set",
		"vers=4.1,clientaddr=::1":  "contains the option clientaddr, which only the driver may set",
		"vers=4.1,,hard":           `contains "", which is not a mount option`,
		"vers=4.1,hard\tsoft":      "contains \"hard\\tsoft\", which is not a mount option",
		"vers=4.1,port=0":          `contains "port=0", which is not a valid port`,
		"vers=4.1,port=70000":      `contains "port=70000", which is not a valid port`,
		"vers=4.1,sec=sys;rm -r /": `contains "sec=sys;rm -r /", which is not a mount option`,
	} {
		_, err := ParseNFSOptions(text)
		assert.EqualError(t, err, want, text)
	}
}

func TestVariantsOfNFSOptions(t *testing.T) {
	fixed, err := ParseNFSOptions("vers=4.1,hard")
	require.NoError(t, err)
	assert.Equal(t, [][]string{{"vers=4.1", "hard"}}, fixed.variants(), "what was asked for, and nothing else")
	four, err := ParseNFSOptions("hard,vers=4")
	require.NoError(t, err)
	assert.Equal(t, [][]string{{"hard", "vers=4.2"}, {"hard", "vers=4.1"}, {"hard", "vers=4.0"}}, four.variants())
	assert.Len(t, DefaultNFSOptions.variants(), 4)
	assert.Equal(t, []string{"vers=4.1", "noresvport", "soft", "timeo=300", "retrans=5"}, DefaultNFSOptions.variants()[3])
}

// client is a kernel with mounts and modules that the test determines.
type client struct {
	errs      []error // of the mounts, in turn; then none
	connect   error
	load      error
	data      []string
	loaded    int
	connected []netip.AddrPort
}

func (c *client) Connect(server netip.AddrPort, _ time.Duration) (netip.Addr, error) {
	c.connected = append(c.connected, server)
	return netip.MustParseAddr("192.0.2.7"), c.connect
}

func (c *client) Mount(_, _ string, _ uintptr, data string) error {
	c.data = append(c.data, data)
	if len(c.errs) < len(c.data) {
		return nil
	}
	return c.errs[len(c.data)-1]
}

func (c *client) Load() error {
	c.loaded++
	return c.load
}

func TestMountNFS(t *testing.T) {
	export := Export{Server: netip.MustParseAddr("192.0.2.1"), Path: "/vol"}
	assert.Equal(t, "192.0.2.1:/vol", export.Source())
	assert.Equal(t, "[2001:db8::1]:/vol", Export{Server: netip.MustParseAddr("2001:db8::1"), Path: "/vol"}.Source())
	const last = ",addr=192.0.2.1,clientaddr=192.0.2.7"
	for name, tc := range map[string]struct {
		client *client
		want   []string // data of the mounts
		loaded int
		is     error
	}{
		"at once": {client: &client{}, want: []string{"vers=4.2,noresvport,softerr,timeo=300,retrans=5" + last}},
		"a kernel that does not know softerr → soft": {client: &client{errs: []error{syscall.EINVAL}}, want: []string{"vers=4.2,noresvport,softerr,timeo=300,retrans=5" + last, "vers=4.2,noresvport,soft,timeo=300,retrans=5" + last}},
		"no module yet → loaded, tried again":        {client: &client{errs: []error{syscall.ENODEV}}, want: []string{"vers=4.2,noresvport,softerr,timeo=300,retrans=5" + last, "vers=4.2,noresvport,softerr,timeo=300,retrans=5" + last}, loaded: 1},
		"no module at all → said":                    {client: &client{errs: []error{syscall.ENODEV}, load: errors.New("not found")}, want: []string{"vers=4.2,noresvport,softerr,timeo=300,retrans=5" + last}, loaded: 1, is: ErrNoNFSClient},
		"no server → nothing is mounted":             {client: &client{connect: syscall.ECONNREFUSED}, is: ErrNoServer},
		"another error → not tried again":            {client: &client{errs: []error{syscall.EACCES}}, want: []string{"vers=4.2,noresvport,softerr,timeo=300,retrans=5" + last}, is: syscall.EACCES},
	} {
		t.Run(name, func(t *testing.T) {
			s := NewWith(mountutils.NewFakeMounter(nil), nil, &fakeFiles{}).WithNFS(tc.client)
			err := s.MountNFS(export, filepath.Join(t.TempDir(), "target"), DefaultNFSOptions)
			if tc.is == nil {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, tc.is)
			}
			assert.Equal(t, tc.want, tc.client.data)
			assert.Equal(t, tc.loaded, tc.client.loaded)
			assert.Equal(t, []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:2049")}, tc.client.connected, "the server is looked for first: mount(2) would wait for it")
		})
	}
}

// stacked is a mount table from which each unmount removes the last mount at a path.
type stacked struct {
	fakeFiles
	table []Entry
	flags []int
	err   error
}

func (s *stacked) Table() ([]Entry, error) { return s.table, nil }

func (s *stacked) Umount(path string, flags int) error {
	s.flags = append(s.flags, flags)
	if s.err != nil {
		return s.err
	}
	for i := len(s.table) - 1; i >= 0; i-- {
		if s.table[i].Path == path {
			s.table = append(s.table[:i], s.table[i+1:]...)
			return nil
		}
	}
	return syscall.EINVAL
}

func TestUnmountNFS(t *testing.T) {
	dir := t.TempDir()
	nfs := Entry{Path: dir, Type: typeNFS4, Source: "192.0.2.1:/vol", Device: 7}
	other := Entry{Path: filepath.Join(dir, "pod"), Type: typeNFS4, Source: nfs.Source, Device: 7}
	of := func() (*System, *stacked) {
		files := &stacked{table: []Entry{nfs, other, nfs}}
		return NewWith(mountutils.NewFakeMounter(nil), nil, files), files
	}
	s, files := of()
	require.NoError(t, s.UnmountNFS(dir))
	assert.Equal(t, []Entry{other}, files.table, "all that is stacked there, and nothing else")
	assert.Equal(t, []int{0, 0}, files.flags)

	s, files = of()
	require.NoError(t, s.DetachNFS(dir, FailCalls))
	assert.Equal(t, []int{unix.MNT_DETACH | unix.MNT_FORCE, unix.MNT_DETACH | unix.MNT_FORCE}, files.flags)

	s, files = of()
	require.NoError(t, s.DetachNFS(dir, KeepCalls))
	assert.Equal(t, []int{unix.MNT_DETACH, unix.MNT_DETACH}, files.flags, "calls of other pods go on")

	s, files = of()
	files.err = syscall.EBUSY
	require.ErrorIs(t, s.UnmountNFS(dir), syscall.EBUSY)
	assert.Len(t, files.table, 3)

	s, _ = of()
	require.NoError(t, s.UnmountNFS(filepath.Join(dir, "nothing")), "what is not mounted is off")
	found, err := s.Listed(dir)
	require.NoError(t, err)
	assert.Equal(t, nfs, found)
	others, err := s.Others(nfs)
	require.NoError(t, err)
	assert.Equal(t, []string{other.Path}, others)
}
