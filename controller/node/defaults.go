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

// defaultsRetry is when to look again at the file system for disks that it lacked:
// directories are made, and mounted, without an event in the API. While nothing has
// changed, this asks nothing of the API server and writes nothing.
const defaultsRetry = 3 * time.Second

// defaulted is the outcome of setDefaults.
type defaulted struct {
	// kubeNode is nil while it is not known; then the problems are not known either.
	kubeNode *corev1.Node
	problems defaults.Problems
	// written: the Node's spec is no longer what the caller has.
	written bool
	// again is when to look again though nothing may have changed in the API.
	again time.Duration
}

// setDefaults adds to a node without disks, or without tags, those that the Kubernetes
// node's label and annotations ask for. Every sync calls it, so label, annotations, setting
// and node may come in any order, and what the user removes altogether is there again at
// once.
//
// It decides from the caches, and again from a live read before it does anything: in
// between the user may have added a disk. It writes under the version read, so a disk that
// the user adds even later makes the write a conflict.
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
	tries := decision.Source == defaults.FromDataPath
	if tries {
		if wait := c.lastDefault.wait(c.defaultDataPath(), c.deps.Clock.Now()); wait > 0 {
			noteDefaultDisk(&out, c.lastDefault.err, wait)
			tries = false
		}
	}
	if !tries && len(disks)+len(decision.Tags) == 0 && !isDueNoMore(node) {
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
		if !tries {
			break
		}
		if disks, err = c.defaultDisk(); err != nil {
			noteDefaultDisk(&out, err, c.lastDefault.delay)
		}
	}
	if len(disks)+len(decision.Tags) == 0 && !isDueNoMore(live) {
		if out.problems.Disks == nil {
			return defaulted{}, queue.ErrStale // the cache shows a node that lacks what the live one has
		}
		return out, nil
	}
	err = c.writeDefaults(ctx, live, disks, decision.Tags, log)
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
		noteRefusal(&out.problems, decision.Source, len(disks) > 0, len(decision.Tags) > 0, err)
		return out, nil // the rest of the sync must not wait until a user lifts this
	}
	out.written = err == nil
	return out, err
}

// noteDefaultDisk adds that the default disk cannot be made.
func noteDefaultDisk(out *defaulted, err error, again time.Duration) {
	out.problems.Disks = &defaults.Problem{
		Reason:  types.ReasonDefaultDiskFailed,
		Message: "the default disk could not be made: " + err.Error(),
	}
	out.again = soonest(again, out.again)
}

// isDueNoMore tells whether a node whose default disk was due has got a disk from the user:
// the default disk must not come when the user removes that one.
func isDueNoMore(n *longhorn.Node) bool {
	_, due := n.Annotations[types.AnnotationDefaultDiskDue]
	return due && len(n.Spec.Disks) > 0
}

// noteRefusal adds what to say when the API server does not take the spec, such as by a
// policy of the cluster's own.
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
	paths := make([]string, 0, len(node.Spec.Disks))
	for _, d := range node.Spec.Disks {
		paths = append(paths, d.Path)
	}
	return defaults.Decide(defaults.Input{
		LabeledOnly: c.labeledOnly(),
		Labels:      kubeNode.Labels, Annotations: kubeNode.Annotations,
		HasDisks: hasDisks(node), HasTags: len(node.Spec.Tags) > 0, DiskPaths: paths,
		DefaultDiskDue: node.Annotations[types.AnnotationDefaultDiskDue] != "",
	})
}

// hasDisks also counts disks whose status is still there: a new disk of the same name would
// inherit the identity of the one that was removed.
func hasDisks(n *longhorn.Node) bool { return len(n.Spec.Disks)+len(n.Status.DiskStatus) > 0 }

// configuredDisks compares the disks of the annotation with what is at their paths, which
// it does not change.
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

// writeDefaults adds the disks and tags, if there are any, to the spec.
func (c *Controller) writeDefaults(ctx context.Context, live *longhorn.Node, disks map[string]longhorn.DiskSpec, tags []string, log *logrus.Entry) error {
	if len(disks) > 0 {
		live.Spec.Disks = disks
	}
	if len(live.Spec.Disks) > 0 {
		delete(live.Annotations, types.AnnotationDefaultDiskDue)
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

// recordDefaults puts the problems into the conditions of the planned status. It returns
// those to tell the user once the status is written.
func (c *Controller) recordDefaults(d defaulted, status *longhorn.NodeStatus) []longhorn.Condition {
	if d.kubeNode == nil {
		return nil
	}
	var news []longhorn.Condition
	status.Conditions, news = defaults.Record(status.Conditions, d.problems, c.deps.Clock.Now())
	return news
}

// tellDefaults sends each as a Warning of both the Kubernetes node, where the mistake must
// be mended, and the Longhorn node.
func (c *Controller) tellDefaults(d defaulted, node *longhorn.Node, news []longhorn.Condition) {
	for _, condition := range news {
		c.deps.Recorder.Event(d.kubeNode, corev1.EventTypeWarning, condition.Reason, condition.Message)
		c.deps.Recorder.Event(node, corev1.EventTypeWarning, condition.Reason, condition.Message)
	}
}
