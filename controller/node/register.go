package node

import (
	"context"
	"fmt"
	"strings"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/controller/node/defaults"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/logfields"
)

// reasonDefaultDisk is the Event's when the default disk of a new node could not be made.
const reasonDefaultDisk = "DefaultDisk"

// defaultDiskKey is the name under which the directory of a default disk is scanned,
// before the disk has one.
const defaultDiskKey = "default"

// register makes the Node object of this node.
//
// With the setting create-default-disk-labeled-nodes off, it gets one default disk. A
// disk that the user removes later never comes back, since this happens once; the other
// side is that a node whose default directory cannot be used is registered without a
// disk, which an Event tells, and waits for the user to add one.
//
// With the setting on, it gets none: setDefaults adds what the label says, as it does
// whenever a node has no disk.
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
	var diskErr error
	if !c.labeledOnly() {
		node.Spec.Disks, diskErr = c.defaultDisk()
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
	log.WithField(logfields.Disk, strings.Join(sortedDisks(node), " ")).Info("Registered the node")
	return nil
}

// labeledOnly is the setting create-default-disk-labeled-nodes.
func (c *Controller) labeledOnly() bool {
	return types.SettingBool(types.SettingCreateDefaultDiskLabeled, c.deps.Setting(types.SettingCreateDefaultDiskLabeled))
}

// reservedPercent is what part of a disk is reserved where nobody said how much.
func (c *Controller) reservedPercent() int64 {
	return types.SettingInt(types.SettingReservedPercentage, c.deps.Setting(types.SettingReservedPercentage))
}

// defaultDisk prepares the directory of the setting default-data-path and describes the
// disk in it: named by its file system, with a part of its size reserved. With an error
// it returns no disk, and a map all the same.
func (c *Controller) defaultDisk() (map[string]longhorn.DiskSpec, error) {
	path := types.SettingString(types.SettingDefaultDataPath, c.deps.Setting(types.SettingDefaultDataPath))
	disks := map[string]longhorn.DiskSpec{}
	if err := c.deps.Disks.Prepare(path); err != nil {
		return disks, err
	}
	record := c.look(map[string]string{defaultDiskKey: path})[defaultDiskKey]
	if record.Err != nil {
		return disks, fmt.Errorf("scan %s: %w", path, record.Err)
	}
	disks[defaults.DiskName(record.FSID)] = longhorn.DiskSpec{
		Type:            longhorn.DiskTypeFilesystem,
		Path:            path,
		AllowScheduling: true,
		StorageReserved: defaults.PercentOf(record.StorageMaximum, c.reservedPercent()),
		Tags:            []string{},
	}
	return disks, nil
}
