package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/client"
	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
	"github.com/longhorn-lep/longhorn-manager/share"
	"github.com/longhorn-lep/longhorn-manager/share/firewall"
	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/logfields"
)

// shareMemory is the memory limit of the Go runtime, in bytes. There may be many share managers on a node, and the
// memory is needed for the NFS server.
const shareMemory = 24 << 20

// shareManagerCommand serves one volume over NFS.
func shareManagerCommand() *cli.Command {
	return &cli.Command{
		Name:   "share-manager",
		Usage:  "serve one volume to many nodes over NFS",
		Action: runShareManager,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "volume", Required: true, Usage: "name of the volume, and of the share"},
			&cli.StringFlag{Name: "device", Usage: "the volume's block device (default: " + types.DeviceDirectory + "/VOLUME)"},
			&cli.StringFlag{Name: "fs-type", Value: "ext4", Usage: "file system to create on a blank device: ext4 or xfs"},
			&cli.StringFlag{Name: "mkfs-params", Usage: "further arguments of mkfs, separated by spaces"},
			&cli.StringFlag{Name: "mount-options", Usage: "mount options, separated by commas"},
			&cli.StringFlag{Name: "export-root", Value: "/export", Usage: "directory below which the volume is mounted"},
			&cli.IntFlag{Name: "nfs-port", Value: 2049, Usage: "port of the NFS server"},
			&cli.StringFlag{Name: "health-listen", Value: ":9600", Usage: "host:port of the gRPC health service"},
			&cli.StringFlag{Name: "clients-file", Value: types.ShareClientsDirectory + "/" + types.ShareClientsKey, Usage: "file with the addresses that may mount the share; without it, only this machine may"},
			&cli.StringFlag{Name: "generations-socket", Value: types.GenerationsSocket(), Usage: "socket of the node's instance manager that answers whether the volume's engine is in force"},
			&cli.StringFlag{Name: "squash", Value: string(share.SquashNone), Usage: "which users of clients the server maps to the user nobody: none, root or all"},
			&cli.BoolFlag{Name: "read-only", Usage: "write nothing to the volume"},
			&cli.BoolFlag{Name: "clients-read-only", Usage: "clients only read; the server still creates the file system and writes its records to the volume"},
			&cli.DurationFlag{Name: "lease", Value: 15 * time.Second, Usage: "how long the server keeps the state of a client that does not renew it"},
			&cli.DurationFlag{Name: "grace", Value: 20 * time.Second, Usage: "how long clients may reclaim their state after the server has restarted"},
			&cli.StringFlag{Name: "runtime-directory", Value: "/run/longhorn-share", Usage: "directory for files of this process"},
		},
	}
}

func runShareManager(ctx context.Context, c *cli.Command) error {
	log, err := newLog(c)
	if err != nil {
		return err
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(shareMemory)
	}
	volume := c.String("volume")
	device := c.String("device")
	if device == "" {
		device = types.DeviceDirectory + "/" + volume
	}
	lost, err := types.ParseLostClients(os.Getenv(types.LostClientsEnv))
	if err != nil {
		log.WithError(err).Warn("The list of lost clients is not valid and is ignored: the NFS server waits for all clients")
	}
	generations, err := client.NewGenerations(c.String("generations-socket"))
	if err != nil {
		return err
	}
	defer func() { _ = generations.Close() }()
	return share.Run(ctx, share.Options{
		InForce: inForce(generations, volume), LostClients: lost, PodNode: os.Getenv(types.PodNodeEnv),
		Volume: volume, VolumeUID: os.Getenv(types.VolumeUIDEnv), Device: device,
		FSType: c.String("fs-type"), MkfsParams: strings.Fields(c.String("mkfs-params")), MountOptions: listOf(c.String("mount-options")),
		ExportRoot: c.String("export-root"), NFSPort: c.Int("nfs-port"), HealthListen: c.String("health-listen"),
		ClientsFile: c.String("clients-file"),
		Squash:      share.Squash(c.String("squash")), ReadOnly: c.Bool("read-only"), ClientsReadOnly: c.Bool("clients-read-only"),
		Lease: c.Duration("lease"), Grace: c.Duration("grace"), RuntimeDirectory: c.String("runtime-directory"),
		Log: log.WithField(logfields.Volume, volume),
	})
}

// verdicts translates the verdicts of the instance manager into those of package firewall.
var verdicts = map[proto.InForceReply_Verdict]firewall.Verdict{
	proto.InForceReply_UNCONFIRMED:  firewall.Unconfirmed,
	proto.InForceReply_IN_FORCE:     firewall.Yes,
	proto.InForceReply_NOT_IN_FORCE: firewall.No,
	proto.InForceReply_CANNOT_TELL:  firewall.CannotTell,
}

// inForce sends the question to the node's instance manager. A verdict of a later release that this release does not
// know is neither yes nor no.
func inForce(g *client.Generations, volume string) func(ctx context.Context, device uint64, limited bool) (share.Answer, error) {
	return func(ctx context.Context, device uint64, limited bool) (share.Answer, error) {
		reply, err := g.InForce(ctx, &proto.InForceRequest{Volume: volume, Device: device, Limited: limited})
		switch {
		case errors.Is(err, client.ErrNotOffered):
			return share.Answer{Verdict: firewall.NotOffered}, err
		case errors.Is(err, client.ErrRefused):
			return share.Answer{Verdict: firewall.Refused}, err
		case err != nil:
			return share.Answer{}, err
		}
		verdict, known := verdicts[reply.GetVerdict()]
		if !known {
			return share.Answer{Verdict: firewall.Unconfirmed}, fmt.Errorf("the instance manager answered with the unknown verdict %s", reply.GetVerdict())
		}
		a := share.Answer{Verdict: verdict, Generation: reply.GetGeneration()}
		if reply.PredecessorAgeMillis != nil {
			a.Before = share.Predecessor{Generation: reply.GetPredecessorGeneration(), Age: time.Duration(reply.GetPredecessorAgeMillis()) * time.Millisecond}
		}
		return a, nil
	}
}

// listOf splits a comma-separated list and omits empty parts.
func listOf(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
}
