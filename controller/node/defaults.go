package node

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/longhorn-lep/longhorn-manager/controller/node/defaults"
	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/disk"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/logfields"
)

// defaultsRetry is when the file system is looked at again for disks that it lacked: a
// directory is made, or mounted, without an event in the API. Nothing is asked of the
// API server, and nothing written, while it is as it was.
const defaultsRetry = 3 * time.Second

// defaulted is the outcome of setDefaults.
type defaulted struct {
	// kubeNode is nil while nothing is known of it; then problems are not known either.
	kubeNode *corev1.Node
	problems defaults.Problems
	// written: the Node's spec is not any more what the caller has of it.
	written bool
	// again is when to look again though nothing may have changed in the API.
	again time.Duration
}

// setDefaults adds to a node without disks, or without tags, those that the Kubernetes
// node's label and annotations ask for. It is called at every sync, so the order in
// which label, annotations, setting and node come does not matter, and what the user
// removes altogether is there again at once.
//
// The decision is made from the caches, and made again from a live read before anything
// is done: in between the user may have added a disk. The write is under the version
// read, so a disk that is added even later makes it a conflict.
func (c *Controller) setDefaults(ctx context.Context, node *longhorn.Node, log *logrus.Entry) (defaulted, error) {
	kubeNode, err := c.deps.KubeNodes.GetRO(node.Name)
	if apierrors.IsNotFound(err) {
		return defaulted{again: scanInterval}, nil
	}
	if err != nil {
		return defaulted{}, err
	}
	out := defaulted{kubeNode: kubeNode, again: scanInterval}
	decision := c.decideDefaults(kubeNode, node)
	out.problems = decision.Problems
	disks := c.configuredDisks(decision, &out)
	if decision.Source != defaults.FromDataPath && len(disks)+len(decision.Tags) == 0 {
		return out, nil
	}

	live, err := c.deps.Nodes.Live(ctx, node.Name)
	if err != nil {
		return defaulted{}, err
	}
	if live.UID != node.UID || live.DeletionTimestamp != nil {
		return defaulted{}, queue.ErrStale
	}
	decision = c.decideDefaults(kubeNode, live)
	switch decision.Source {
	case defaults.FromNowhere: // it has disks by now, or the setting has changed
		disks = nil
	case defaults.FromDataPath:
		if disks, err = c.defaultDisk(); err != nil {
			out.problems.Disks = &defaults.Problem{
				Reason:  types.ReasonDefaultDiskFailed,
				Message: "the default disk could not be made: " + err.Error(),
			}
		}
	}
	if len(disks)+len(decision.Tags) == 0 {
		if out.problems.Disks == nil {
			return defaulted{}, queue.ErrStale // the cache shows a node that lacks what the live one has
		}
		return out, nil
	}
	err = c.writeDefaults(ctx, live, disks, decision.Tags, log)
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
		noteRefusal(&out.problems, decision.Source, len(disks) > 0, len(decision.Tags) > 0, err)
		return out, nil // the rest of the sync must not wait for somebody to lift this
	}
	out.written = err == nil
	return out, err
}

// noteRefusal adds what is to be said when the API server does not take the spec, as by
// a policy of the cluster's own.
func noteRefusal(p *defaults.Problems, source defaults.Source, withDisks, withTags bool, err error) {
	if withDisks {
		p.Disks = &defaults.Problem{Reason: types.ReasonDefaultDisksConfigInvalid, Message: "the API server refuses the disks: " + err.Error()}
		if source == defaults.FromDataPath {
			p.Disks.Reason = types.ReasonDefaultDiskFailed
		}
	}
	if withTags {
		p.Tags = &defaults.Problem{Reason: types.ReasonDefaultNodeTagsInvalid, Message: "the API server refuses the tags: " + err.Error()}
	}
}

func (c *Controller) decideDefaults(kubeNode *corev1.Node, node *longhorn.Node) defaults.Decision {
	return defaults.Decide(defaults.Input{
		LabeledOnly: c.labeledOnly(),
		Labels:      kubeNode.Labels, Annotations: kubeNode.Annotations,
		HasDisks: hasDisks(node), HasTags: len(node.Spec.Tags) > 0,
	})
}

// hasDisks counts also those whose status is still there: a new disk of the same name
// would inherit the identity of the one that was removed.
func hasDisks(n *longhorn.Node) bool { return len(n.Spec.Disks)+len(n.Status.DiskStatus) > 0 }

// configuredDisks holds the disks of the annotation against what is at their paths,
// which it does not change.
func (c *Controller) configuredDisks(decision defaults.Decision, out *defaulted) map[string]longhorn.DiskSpec {
	if decision.Source != defaults.FromConfig {
		return nil
	}
	paths := make(map[string]string, len(decision.Disks))
	for _, d := range decision.Disks {
		paths[d.Path] = d.Path // disks without a name go by their path
	}
	found := make(map[string]defaults.Found, len(paths))
	for path, record := range c.look(paths) {
		found[path] = foundOf(record)
	}
	disks, err := defaults.Check(decision.Disks, found, c.reservedPercent())
	if err != nil {
		out.problems.Disks = &defaults.Problem{Reason: types.ReasonDefaultDisksConfigInvalid, Message: err.Error()}
		out.again = defaultsRetry
		return nil
	}
	return disks
}

// foundOf is a record as package defaults compares it. The number of the super block and
// st_dev are the same except on btrfs, where only the former tells file systems apart.
func foundOf(r disk.Record) defaults.Found {
	f := defaults.Found{Exists: !errors.Is(r.Err, fs.ErrNotExist), Filesystem: r.SuperBlockID, FSID: r.FSID, MaximumBytes: r.StorageMaximum}
	if f.Exists {
		f.Err = r.Err
	}
	if f.Filesystem == 0 {
		f.Filesystem = r.DeviceID
	}
	return f
}

// look examines directories that are no disks of the node yet.
func (c *Controller) look(paths map[string]string) map[string]disk.Record {
	return c.deps.Disks.Scan(paths)
}

// writeDefaults adds what there is of disks and tags to the spec.
func (c *Controller) writeDefaults(ctx context.Context, live *longhorn.Node, disks map[string]longhorn.DiskSpec, tags []string, log *logrus.Entry) error {
	if len(disks) > 0 {
		live.Spec.Disks = disks
	}
	if len(tags) > 0 {
		live.Spec.Tags = tags
	}
	if _, err := c.deps.Nodes.Update(ctx, live); err != nil {
		return err
	}
	log.WithField(logfields.Disk, slices.Sorted(maps.Keys(disks))).WithField("tags", tags).Info("Gave the node its default disks and tags")
	return nil
}

// recordDefaults puts the problems into the conditions of the planned status and
// returns those that the user must be told of once the status is written.
func (c *Controller) recordDefaults(d defaulted, status *longhorn.NodeStatus) []longhorn.Condition {
	if d.kubeNode == nil {
		return nil
	}
	var news []longhorn.Condition
	status.Conditions, news = defaults.Record(status.Conditions, d.problems, c.deps.Clock.Now())
	return news
}

// tellDefaults sends each as a Warning of both the Kubernetes node, where the mistake
// is to be mended, and the Longhorn node.
func (c *Controller) tellDefaults(d defaulted, node *longhorn.Node, news []longhorn.Condition) {
	for _, condition := range news {
		c.deps.Recorder.Event(d.kubeNode, corev1.EventTypeWarning, condition.Reason, condition.Message)
		c.deps.Recorder.Event(node, corev1.EventTypeWarning, condition.Reason, condition.Message)
	}
}
