package app

import (
	"context"
	"fmt"
	"io"

	"github.com/sirupsen/logrus"
	"github.com/urfave/cli/v3"
	"k8s.io/utils/clock"

	"github.com/longhorn-lep/longhorn-manager/app/inspect"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/explain"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/manager"
)

// snapshotCommand has the commands for the snapshots of volumes. They have the rights of the user.
func snapshotCommand() *cli.Command {
	command := func(name, usage, arguments string, action cli.ActionFunc, flags ...cli.Flag) *cli.Command {
		return &cli.Command{Name: name, Usage: usage, ArgsUsage: arguments, Action: action, Flags: flags, ShellComplete: completeNames(inspect.VolumeNames)}
	}
	return &cli.Command{
		Name: "snapshot", Usage: "the snapshots of a volume: list, create, delete, and return to one; a volume may be named by NAMESPACE/NAME of its claim",
		Flags: clusterFlags(),
		Commands: []*cli.Command{
			command("list", "the snapshots of a volume, the oldest first", "VOLUME", listSnapshots, outputFlag()),
			command("create", "request a snapshot; a detached volume is attached for that time", "VOLUME [NAME]", createSnapshot,
				&cli.StringMapFlag{Name: "label", Usage: "a label, as key=value; may be repeated"}),
			command("delete", "delete a snapshot; replicas free its space later", "VOLUME NAME", deleteSnapshot),
			command("revert", "return a detached volume to a snapshot; all that was written since then is lost", "VOLUME NAME", revertSnapshot,
				&cli.BoolFlag{Name: "yes", Usage: "confirm that this data may be lost"}),
		},
	}
}

// onVolume is what a command for snapshots works with.
type onVolume struct {
	snapshot *explain.Snapshot
	manager  *manager.Manager
	volume   string
	args     []string // after the volume
}

// volumeOf reads the cluster, and finds the volume that the first argument names.
func volumeOf(ctx context.Context, c *cli.Command, least, most int) (onVolume, error) {
	args := c.Args().Slice()
	if len(args) < least || len(args) > most {
		return onVolume{}, fmt.Errorf("snapshot %s needs %s; it got %d arguments", c.Name, c.ArgsUsage, len(args))
	}
	cluster, _, err := clusterOf(c)
	if err != nil {
		return onVolume{}, err
	}
	s, err := cluster.Snapshot(ctx)
	if err != nil {
		return onVolume{}, err
	}
	volume, err := explain.VolumeNamed(s, args[0])
	return onVolume{s, managerFor(cluster), volume, args[1:]}, err
}

// managerFor returns a Manager with the rights of the user. It has no caches: only use cases that read everything live
// work.
func managerFor(cluster inspect.Cluster) *manager.Manager {
	quiet := logrus.New()
	quiet.SetOutput(io.Discard)
	store := datastore.New(datastore.Options{
		Kube: cluster.Kube, Longhorn: cluster.Longhorn, Namespace: cluster.Namespace, Kinds: []datastore.Kind{datastore.Settings},
	})
	return manager.New(manager.DepsOf(store, datastore.NewWorkloads(cluster.Kube), clock.RealClock{}, logrus.NewEntry(quiet)))
}

func listSnapshots(ctx context.Context, c *cli.Command) error {
	on, err := volumeOf(ctx, c, 1, 1)
	if err != nil {
		return err
	}
	list := on.snapshot.SnapshotsOf(on.volume)
	if c.String("output") == outputJSON {
		return writeJSON(c.Root().Writer, append([]*longhorn.Snapshot{}, list...))
	}
	if len(list) == 0 {
		if on.snapshot.MayNotRead(explain.ResourceSnapshots) {
			return fmt.Errorf("your account may not read %s", explain.ResourceSnapshots)
		}
		fmt.Fprintln(c.Root().Writer, "No snapshots.")
		return nil
	}
	printerOf(c).Snapshots(list)
	return nil
}

func createSnapshot(ctx context.Context, c *cli.Command) error {
	on, err := volumeOf(ctx, c, 1, 2)
	if err != nil {
		return err
	}
	name := ""
	if len(on.args) > 0 {
		name = on.args[0]
	}
	s, err := on.manager.CreateSnapshot(ctx, on.volume, name, c.StringMap("label"))
	if err != nil {
		return err
	}
	fmt.Fprintf(c.Root().Writer, "snapshot %s requested; %s snapshot list %s shows whether it is ready\n", s.Name, pluginCall, on.volume)
	return nil
}

func deleteSnapshot(ctx context.Context, c *cli.Command) error {
	on, err := volumeOf(ctx, c, 2, 2)
	if err != nil {
		return err
	}
	s, err := explain.SnapshotOf(on.snapshot, on.volume, on.args[0])
	if err != nil {
		return err
	}
	if err := on.manager.DeleteSnapshot(ctx, on.volume, s.Name); err != nil {
		return err
	}
	fmt.Fprintf(c.Root().Writer, "snapshot %s deleted; %s explain volume %s says what the release of its space waits for\n", s.Name, pluginCall, on.volume)
	return nil
}

func revertSnapshot(ctx context.Context, c *cli.Command) error {
	on, err := volumeOf(ctx, c, 2, 2)
	if err != nil {
		return err
	}
	s, err := explain.SnapshotOf(on.snapshot, on.volume, on.args[0])
	if err != nil {
		return err
	}
	if !c.Bool("yes") {
		return fmt.Errorf("all data that was written to volume %s since snapshot %s (%s) would be lost; repeat the command with --yes to confirm", on.volume, s.Name, s.Status.CreationTime)
	}
	if _, err := on.manager.RevertSnapshot(ctx, on.volume, s.Name); err != nil {
		return err
	}
	fmt.Fprintf(c.Root().Writer, "volume %s returned to snapshot %s; its replicas follow when it is attached\n", on.volume, s.Name)
	return nil
}
