package share

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/longhorn-lep/longhorn-manager/share/ganesha"
	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/reach"
)

// Squash says with which user ID the server acts for a client's users.
type Squash = types.NFSSquash

// The values of Squash.
const (
	SquashNone = types.NFSSquashNone
	SquashRoot = types.NFSSquashRoot
	SquashAll  = types.NFSSquashAll
)

// optionReadOnly among a mount's options.
const optionReadOnly = "ro"

// The greatest values that NFS-Ganesha accepts.
const (
	maxLease = 120 * time.Second
	maxGrace = 180 * time.Second
)

// ErrOptions means that the share manager was started with invalid options.
var ErrOptions = errors.New("invalid option")

// Options say what is shared and how.
type Options struct {
	// Volume is the name under which clients mount the share; Device is its block device.
	Volume, Device string
	// VolumeUID is the UID of the Volume. It distinguishes the records of this volume's clients from those of another
	// volume's (ganesha.Claim). If it is "", or is not a UID, it is not known. A leader of an earlier release does not
	// pass it.
	VolumeUID string
	// FSType is the file system that is created on a blank device, with MkfsParams. Arguments that
	// types.ParseMkfsParams refuses matter only there: an existing file system is served nevertheless.
	FSType     string
	MkfsParams []string
	// MountOptions of the file system on the device; "ro" means ReadOnly too.
	MountOptions []string
	// ExportRoot is the directory below which the volume is mounted.
	ExportRoot string
	NFSPort    int
	// HealthListen is the host:port of the gRPC health service.
	HealthListen string
	// ClientsFile lists the hosts that may send to NFSPort (types.ShareClientsConfigMap). It may change, appear and
	// disappear at any time.
	ClientsFile string
	Squash      Squash
	// ReadOnly: nothing is written to the volume, neither by clients nor by the server.
	ReadOnly bool
	// ClientsReadOnly: clients only read. The server creates a file system on a blank device. It stores its records of
	// clients on the volume, so that the clients keep their state beyond this process.
	ClientsReadOnly bool
	// Lease is how long a client's state lives without a sign of life. Grace is how long clients have to claim their
	// state after the server has restarted.
	Lease, Grace time.Duration
	// RuntimeDirectory holds files that belong only to this process.
	RuntimeDirectory string
	// Program is the NFS server; "": ganesha.nfsd on the path. WakeLibrary is preloaded into it, if the file exists;
	// "": ganesha.WakeLibrary.
	Program, WakeLibrary string
	// InForce asks whether the engine that serves a device, given by its number, is in force; see firewall.Question.
	// nil: the question is not possible. Then the port is open, as with an instance manager of an earlier release.
	InForce func(ctx context.Context, device uint64, limited bool) (Answer, error) `json:"-"`
	// LostClients are the clients on nodes that are down. The first server of this process does not wait for them, if
	// it is proven that the former server no longer reaches a client.
	LostClients types.LostClients
	// PodNode is the name of this pod's node; "": not known, and the server waits for all clients.
	PodNode string
	// Answers reports whether any of these addresses (IP:port) answers before ctx is done. It answers by accepting a
	// connection or refusing it. nil: reach.Any.
	Answers func(ctx context.Context, addresses []string) bool `json:"-"`
	Log     *logrus.Entry
}

// normalize checks the options, and returns them with derived values.
func (o Options) normalize() (Options, error) {
	if _, err := types.VolumeName(o.Volume); err != nil {
		return o, fmt.Errorf("%w: volume: %w", ErrOptions, err)
	}
	if !ganesha.IsVolumeUID(o.VolumeUID) {
		o.VolumeUID = ""
	}
	if o.Program == "" {
		o.Program = "ganesha.nfsd"
	}
	if o.WakeLibrary == "" {
		o.WakeLibrary = ganesha.WakeLibrary
	}
	if o.Answers == nil {
		o.Answers = reach.Any
	}
	o.ReadOnly = o.ReadOnly || slices.Contains(o.MountOptions, optionReadOnly)
	if o.ReadOnly && !slices.Contains(o.MountOptions, optionReadOnly) {
		o.MountOptions = append(slices.Clone(o.MountOptions), optionReadOnly)
	}
	for name, path := range map[string]string{"device": o.Device, "export root": o.ExportRoot, "runtime directory": o.RuntimeDirectory, "clients file": o.ClientsFile} {
		if !filepath.IsAbs(path) || strings.ContainsAny(path, "\"\\\n\r") {
			return o, fmt.Errorf("%w: %s %q: must be an absolute path without quotes, backslashes and line breaks", ErrOptions, name, path)
		}
	}
	switch {
	case types.CheckFSType(o.FSType) != nil:
		return o, fmt.Errorf("%w: file system %q %w", ErrOptions, o.FSType, types.CheckFSType(o.FSType))
	case o.NFSPort < 1 || o.NFSPort > 65535:
		return o, fmt.Errorf("%w: NFS port %d: must be from 1 to 65535", ErrOptions, o.NFSPort)
	case !slices.Contains([]Squash{SquashNone, SquashRoot, SquashAll}, o.Squash):
		return o, fmt.Errorf("%w: squash %q: must be none, root or all", ErrOptions, o.Squash)
	case o.Lease < time.Second || o.Lease > maxLease || o.Lease%time.Second != 0:
		return o, fmt.Errorf("%w: lease %s: must be a whole number of seconds, from 1s to %s", ErrOptions, o.Lease, maxLease)
	case o.Grace < o.Lease || o.Grace > maxGrace || o.Grace%time.Second != 0:
		return o, fmt.Errorf("%w: grace %s: must be a whole number of seconds, from the lease of %s to %s", ErrOptions, o.Grace, o.Lease, maxGrace)
	}
	return o, nil
}

// target is where the volume's file system is mounted.
func (o Options) target() string { return filepath.Join(o.ExportRoot, o.Volume) }
