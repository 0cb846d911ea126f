package node

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"

	"github.com/longhorn-lep/longhorn-manager/disk"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/logfields"
)

// Disks is the daemon's access to the disks of its node.
type Disks interface {
	// Scan examines directories, by disk name. It may block as long as the kernel does.
	Scan(paths map[string]string) map[string]disk.Record
	// CreateConfig creates the UUID file of a disk if disk.Match requested it.
	CreateConfig(record disk.Record, config disk.Config) error
	// WriteClaim writes a claim's number into the UUID file if disk.DecideClaim requested it.
	WriteClaim(record disk.Record, claim int64) error
	// Prepare creates the directory of a default disk.
	Prepare(path string) error
	// NewUUID generates a disk UUID that differs from the known ones.
	NewUUID(known []string) (string, error)
}

// HostDisks are the real disks, below the directory where the host's root is mounted.
type HostDisks struct{ Root string }

// Scan is disk.Scan, with the volumes on which disks lie. The volumes are missing if they cannot be determined.
func (h HostDisks) Scan(paths map[string]string) map[string]disk.Record {
	records := disk.Scan(h.Root, paths)
	_ = disk.MarkVolumes(h.Root, types.DeviceDirectory, records)
	return records
}

// CreateConfig is disk.Create.
func (h HostDisks) CreateConfig(record disk.Record, config disk.Config) error {
	return disk.Create(h.Root, record, config)
}

// WriteClaim is disk.WriteClaim.
func (h HostDisks) WriteClaim(record disk.Record, claim int64) error {
	return disk.WriteClaim(h.Root, record, claim)
}

// Prepare is disk.Prepare.
func (h HostDisks) Prepare(path string) error { return disk.Prepare(h.Root, path) }

// NewUUID is disk.NewUUID, with the system's random source.
func (h HostDisks) NewUUID(known []string) (string, error) {
	return disk.NewUUID(rand.Reader, known)
}

func sortedDisks(n *longhorn.Node) []string {
	names := make([]string, 0, len(n.Spec.Disks))
	for name := range n.Spec.Disks {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (c *Controller) scan(n *longhorn.Node) scanned {
	paths := make(map[string]string, len(n.Spec.Disks))
	for name, d := range n.Spec.Disks {
		paths[name] = d.Path
	}
	return c.scanner.Scan(paths)
}

// createConfigs creates the UUID files of new disks and returns a new scan. If it cannot create a file, that is the
// disk's error in the scan, so that its condition says why. The file has no claim yet: the claim is the next step, for
// a new disk as well as for a moved one.
func (c *Controller) createConfigs(n *longhorn.Node, names []string, records map[string]disk.Record, log *logrus.Entry) scanned {
	failed := map[string]error{}
	known := knownUUIDs(n, records)
	for _, name := range names {
		uuid, err := c.createConfig(records[name], known)
		switch {
		case errors.Is(err, disk.ErrConfigExists), errors.Is(err, disk.ErrDirectoryChanged):
			// Another writer was faster; the new scan shows the present content.
			log.WithError(err).WithField(logfields.Disk, name).Debug("Did not create a UUID file")
		case err != nil:
			failed[name] = err
		default:
			known = append(known, uuid)
			log.WithFields(logrus.Fields{logfields.Disk: name, logfields.UUID: uuid}).Info("Created the UUID file of a new disk")
			if r := records[name]; r.InsideMount {
				c.deps.Recorder.Eventf(n, corev1.EventTypeNormal, types.EventDiskSharesFilesystem,
					"new disk %s(%s) on node %s has no file system of its own: no file system is mounted at its path. "+
						"It shares the file system of %s with all other data there. "+
						"Set storageReserved to the space that this data needs, or mount a file system at the path before the disk is used",
					name, r.Path, n.Name, cmp.Or(r.MountSource, "the directory above"))
			}
		}
	}
	fresh := c.scan(n)
	for name, err := range failed {
		r := fresh.Records[name]
		r.Err = err
		fresh.Records[name] = r
	}
	return fresh
}

func (c *Controller) createConfig(record disk.Record, known []string) (string, error) {
	uuid, err := c.deps.Disks.NewUUID(known)
	if err != nil {
		return "", err
	}
	if err := c.deps.Disks.CreateConfig(record, disk.NewConfig(record.Name, uuid)); err != nil {
		return "", fmt.Errorf("create the UUID file: %w", err)
	}
	return uuid, nil
}

func knownUUIDs(n *longhorn.Node, records map[string]disk.Record) []string {
	var known []string
	for _, d := range n.Status.DiskStatus {
		known = append(known, d.DiskUUID)
	}
	for _, r := range records {
		if r.Config != nil {
			known = append(known, r.Config.UUID)
		}
	}
	return known
}
