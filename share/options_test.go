package share

import (
	"io"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/share/ganesha"
)

func quiet() *logrus.Entry {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return logrus.NewEntry(log)
}

// valid are options as the command line passes them.
func valid() Options {
	return Options{
		Volume: "pvc-1", Device: "/dev/longhorn/pvc-1", FSType: "ext4", ExportRoot: "/export", NFSPort: 2049, HealthListen: ":9600",
		Squash: SquashNone, Lease: 15 * time.Second, Grace: 20 * time.Second, RuntimeDirectory: "/run/longhorn-share", Log: quiet(), ClientsFile: "/etc/longhorn-share/clients",
	}
}

func TestInvalidOptions(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Options)
	}{
		{"no volume", func(o *Options) { o.Volume = "" }},
		{"a volume that is a path", func(o *Options) { o.Volume = "../etc" }},
		{"a relative device", func(o *Options) { o.Device = "loop0" }},
		{"a quote in the export root", func(o *Options) { o.ExportRoot = `/ex"port` }},
		{"a line end in the runtime directory", func(o *Options) { o.RuntimeDirectory = "/run\n/x" }},
		{"an unknown file system", func(o *Options) { o.FSType = "btrfs" }},
		{"port 0", func(o *Options) { o.NFSPort = 0 }},
		{"an unknown squash", func(o *Options) { o.Squash = "some" }},
		{"no lease", func(o *Options) { o.Lease = 0 }},
		{"a lease that Ganesha does not take", func(o *Options) { o.Lease, o.Grace = 121*time.Second, 130*time.Second }},
		{"half a second of lease", func(o *Options) { o.Lease = 1500 * time.Millisecond }},
		{"grace below the lease", func(o *Options) { o.Grace = 14 * time.Second }},
		{"grace that Ganesha does not take", func(o *Options) { o.Grace = 181 * time.Second }},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := valid()
			c.change(&o)
			_, err := o.normalize()
			assert.ErrorIs(t, err, ErrOptions)
		})
	}
}

func TestReadOnlyAndItsMountOptionGoTogether(t *testing.T) {
	given := []string{"noatime"}
	o := valid()
	o.ReadOnly, o.MountOptions = true, given
	o, err := o.normalize()
	require.NoError(t, err)
	assert.Equal(t, []string{"noatime", "ro"}, o.MountOptions)
	assert.Equal(t, []string{"noatime"}, given)

	o = valid()
	o.MountOptions = []string{"ro"}
	o, err = o.normalize()
	require.NoError(t, err)
	assert.True(t, o.ReadOnly)
	assert.Equal(t, []string{"ro"}, o.MountOptions)
}

// Clients only read if the volume is read-only, or if the option says so.
func TestServerConfig(t *testing.T) {
	for _, c := range []struct {
		readOnly, clientsReadOnly, want bool
	}{{false, false, false}, {true, false, true}, {false, true, true}} {
		o := valid()
		o.ReadOnly, o.ClientsReadOnly = c.readOnly, c.clientsReadOnly
		o, err := o.normalize()
		require.NoError(t, err)
		got := o.serverConfig(newVolume(o))
		assert.Equal(t, c.want, got.ReadOnly, "%+v", c)
		assert.NotEmpty(t, got.Mark)
		got.Mark, got.Log = "", nil
		assert.Equal(t, ganesha.Config{
			Volume: "pvc-1", Path: "/export/pvc-1", Port: 2049, Squash: SquashNone, ReadOnly: c.want, Lease: 15 * time.Second, Grace: 20 * time.Second,
			Recovery: "/run/longhorn-share/recovery", File: "/run/longhorn-share/ganesha.conf", PIDFile: "/run/longhorn-share/ganesha.pid",
			Program: "ganesha.nfsd", WakeLibrary: ganesha.WakeLibrary,
		}, got)
	}
}
