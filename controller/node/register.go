package node

import (
	"context"
	"fmt"
	"math/big"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/disk"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/logfields"
)

// reasonDefaultDisk is the Event's when the default disk of a new node could not be made.
const reasonDefaultDisk = "DefaultDisk"

// defaultDiskKey is the name under which the directory of a default disk is scanned,
// before the disk has one.
const defaultDiskKey = "default"

// register makes the Node object of this node, with one default disk. A disk that
// the user removes later never comes back, since this happens once; the other side
// is that a node whose default directory cannot be used is registered without a disk,
// which an Event tells, and waits for the user to add one.
func (c *Controller) register(ctx context.Context, log *logrus.Entry) error {
	// The cache shows only what its selection matched: ask the API server itself.
	_, err := c.deps.Nodes.Live(ctx, c.deps.Node)
	if err == nil || !apierrors.IsNotFound(err) {
		return err // it exists: its event will bring us back
	}
	node := &longhorn.Node{
		ObjectMeta: metav1.ObjectMeta{Name: c.deps.Node, Namespace: c.deps.Namespace},
		Spec: longhorn.NodeSpec{
			Name: c.deps.Node, AllowScheduling: true, Disks: map[string]longhorn.DiskSpec{}, Tags: []string{},
		},
	}
	path := types.SettingString(types.SettingDefaultDataPath, c.deps.Setting(types.SettingDefaultDataPath))
	percent := types.SettingInt(types.SettingReservedPercentage, c.deps.Setting(types.SettingReservedPercentage))
	name, spec, diskErr := c.defaultDisk(path, percent)
	if diskErr == nil {
		node.Spec.Disks[name] = spec
	}
	created, err := c.deps.Nodes.Create(ctx, node)
	if err != nil {
		return err
	}
	if diskErr != nil {
		log.WithError(diskErr).Warn("Registered the node without a disk")
		c.deps.Recorder.Eventf(created, corev1.EventTypeWarning, reasonDefaultDisk,
			"No default disk was made on node %s: %v; add a disk to the node when this is cured", c.deps.Node, diskErr)
		return nil
	}
	log.WithField(logfields.Disk, name).Info("Registered the node with its default disk")
	return nil
}

// defaultDisk prepares the directory and describes the disk in it: named by its
// file system, with a part of its size reserved.
func (c *Controller) defaultDisk(path string, reservedPercent int64) (string, longhorn.DiskSpec, error) {
	if err := c.deps.Disks.Prepare(path); err != nil {
		return "", longhorn.DiskSpec{}, err
	}
	record := c.deps.Disks.Scan(map[string]string{defaultDiskKey: path})[defaultDiskKey]
	if record.Err != nil {
		return "", longhorn.DiskSpec{}, fmt.Errorf("scan %s: %w", path, record.Err)
	}
	return defaultDiskName(record), longhorn.DiskSpec{
		Type:            longhorn.DiskTypeFilesystem,
		Path:            path,
		AllowScheduling: true,
		StorageReserved: percentOf(record.StorageMaximum, reservedPercent),
		Tags:            []string{},
	}, nil
}

func defaultDiskName(r disk.Record) string { return "default-disk-" + r.FSID }

// percentOf takes the detour by big numbers, for size × percent may not fit.
func percentOf(size, percent int64) int64 {
	product := new(big.Int).Mul(big.NewInt(size), big.NewInt(percent))
	return product.Div(product, big.NewInt(100)).Int64()
}
