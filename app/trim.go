package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/urfave/cli/v3"
	corev1 "k8s.io/api/core/v1"

	"github.com/longhorn-lep/longhorn-manager/app/trim"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/manager"
	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/logfields"
)

// trimCommand is the command that the daemon starts for each trim.
func trimCommand() *cli.Command {
	return &cli.Command{
		Name: trim.Command, Hidden: true, Usage: "trim the file system of one device and print the result as JSON; the daemon calls it", ArgsUsage: "HOST-ROOT DEVICE",
		Action: func(_ context.Context, c *cli.Command) error {
			if c.Args().Len() != 2 {
				return fmt.Errorf("%s takes two arguments, the host's root directory and a device", trim.Command)
			}
			return trim.Main(c.Root().Writer, c.Args().Get(0), c.Args().Get(1))
		},
	}
}

// trimEventTimeout bounds the read of the volume that an Event is about.
const trimEventTimeout = 10 * time.Second

// newTrims returns the trims of file systems of volumes that are mounted on this node.
func (d *daemon) newTrims(store *datastore.Datastore) *trim.Trims {
	return trim.New(trim.Options{
		Node: d.node, Clock: d.env.Clock,
		Run: trim.Checked(d.node, store.Volumes.Live, trim.Process(d.node, d.hostRoot, types.DevicePath, "/proc/self/exe", trim.Command)),
		Ended: func(ctx context.Context, volume string, bytes int64, err error) {
			log := d.env.Log.WithField(logfields.Volume, volume)
			kind, reason, text := corev1.EventTypeNormal, types.EventFilesystemTrimmed,
				fmt.Sprintf("The file system was trimmed: it reported %d unused bytes to the volume", bytes)
			if errors.Is(err, manager.ErrConflict) || errors.Is(err, manager.ErrNotFound) {
				return // nothing was tried; the caller got the error
			}
			if err != nil {
				kind, reason, text = corev1.EventTypeWarning, types.EventFailedFilesystemTrim, err.Error()
				log.WithError(err).Warn("The file system was not trimmed")
			}
			ctx, cancel := context.WithTimeout(ctx, trimEventTimeout)
			defer cancel()
			v, err := store.Volumes.Live(ctx, volume)
			if err != nil {
				log.WithError(err).Warn("No Event about the trim was recorded: the volume could not be read")
				return
			}
			d.env.Recorder.Event(v, kind, reason, text)
		},
	})
}
