package node

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/controller/node/defaults"
	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/logfields"
)

// defaultDiskKey is the name under which the directory of a default disk is scanned,
// before the disk has one.
const defaultDiskKey = "default"

// register creates the Node object of this node, once the settings have the values that the ConfigMap
// longhorn-default-setting gives them.
//
// If the setting create-default-disk-labeled-nodes is off, the node gets one default disk. This happens once, so a disk
// that the user removes later never comes back. If the disk cannot be created, an annotation says that it is due. Then
// setDefaults tries again until the node has a disk.
//
// If the setting is on, the node gets no disk here. setDefaults adds what the label requests, as it does whenever a
// node has no disk.
func (c *Controller) register(ctx context.Context, log *logrus.Entry) error {
	// The cache shows only the objects that its selection matched, so ask the API server itself.
	_, err := c.deps.Nodes.Live(ctx, c.deps.Node)
	if err == nil || !apierrors.IsNotFound(err) {
		return err // it exists: its event triggers another sync
	}
	if waits, err := c.awaitsSettings(ctx); err != nil || waits {
		return err
	}
	node := &longhorn.Node{
		ObjectMeta: metav1.ObjectMeta{Name: c.deps.Node, Namespace: c.deps.Namespace},
		Spec: longhorn.NodeSpec{
			Name: c.deps.Node, AllowScheduling: true, Disks: map[string]longhorn.DiskSpec{}, Tags: []string{},
		},
	}
	var diskErr error
	if !c.labeledOnly() {
		if node.Spec.Disks, diskErr = c.defaultDisk(); diskErr != nil {
			node.Annotations = map[string]string{types.AnnotationDefaultDiskDue: "true"}
		}
	}
	_, err = c.deps.Nodes.Create(ctx, node)
	if err = c.registered(err); err != nil {
		return err
	}
	if diskErr != nil {
		log.WithError(diskErr).Warn("Registered the node without a disk")
		return nil // setDefaults shows the reason, and records the Event
	}
	log.WithField(logfields.Disk, strings.Join(sortedDisks(node), " ")).Info("Registered the node")
	return nil
}

// registered handles the result of creating the Node. If the API server refuses it, the Event belongs to the Kubernetes
// node, because no other object exists.
func (c *Controller) registered(err error) error {
	err = queue.OfChild(err)
	if c.refusals.Tried(c.deps.Node, err, c.deps.Clock.Now()) {
		if kubeNode, unknown := c.deps.KubeNodes.GetRO(c.deps.Node); unknown == nil {
			c.deps.Recorder.Event(kubeNode, corev1.EventTypeWarning, types.ReasonChildRefused, queue.ChildRefusal(err))
		}
	}
	return err
}

// labeledOnly is the setting create-default-disk-labeled-nodes.
func (c *Controller) labeledOnly() bool {
	return c.deps.Setting.Bool(settings.CreateDefaultDiskLabeled)
}

// reservedPercent is the part of a disk that is reserved if its spec does not say.
func (c *Controller) reservedPercent() int64 {
	return c.deps.Setting.Int(settings.ReservedPercentage)
}

// defaultDisk prepares the directory of the setting default-data-path and describes the disk in it. The disk is named
// by its file system, and a part of its size is reserved. With an error it returns no disk, but still a map.
func (c *Controller) defaultDisk() (map[string]longhorn.DiskSpec, error) {
	path := c.defaultDataPath()
	disks, err := c.makeDefaultDisk(path)
	c.lastDefault.note(path, err, c.deps.Clock.Now())
	return disks, err
}

func (c *Controller) defaultDataPath() string {
	return c.deps.Setting.Text(settings.DefaultDataPath)
}

// The default disk is tried again after firstDefaultRetry. After each further failure the time doubles.
const (
	firstDefaultRetry = defaultsRetry
	lastDefaultRetry  = 5 * time.Minute
)

// defaultAttempt is the last attempt to create the default disk, if it failed.
type defaultAttempt struct {
	path  string
	err   error
	at    time.Time
	delay time.Duration
}

func (a *defaultAttempt) note(path string, err error, now time.Time) {
	delay := firstDefaultRetry
	if a.err != nil && a.path == path {
		delay = min(2*a.delay, lastDefaultRetry)
	}
	*a = defaultAttempt{path: path, err: err, at: now, delay: delay}
}

// wait is how long the next attempt at a path must wait. Another path is tried at once.
func (a *defaultAttempt) wait(path string, now time.Time) time.Duration {
	if a.err == nil || a.path != path {
		return 0
	}
	return max(0, a.at.Add(a.delay).Sub(now))
}

func (c *Controller) makeDefaultDisk(path string) (map[string]longhorn.DiskSpec, error) {
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
