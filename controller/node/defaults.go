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

// defaultsRetry is when to check the file system again for disks that were missing: directories are created, and file
// systems mounted, without an event in the API. While nothing has changed, this sends no request to the API server.
const defaultsRetry = 3 * time.Second

// defaulted is the outcome of setDefaults.
type defaulted struct {
	// kubeNode is nil while it is not known. In that case the problems are not known either.
	kubeNode *corev1.Node
	problems defaults.Problems
	// written: the Node's spec differs from the caller's.
	written bool
	// again is when to try again even if nothing has changed in the API.
	again time.Duration
}

// setDefaults adds default disks and tags to a node. A node without disks gets the disks, and a node without tags gets
// the tags, that the Kubernetes node's label and annotations request. Every sync calls it. So label, annotations,
// setting and node may come in any order. If the user removes all disks or tags, the defaults return at once.
//
// It decides from the caches. Before it acts, it decides again from a live read, because the user may have added a disk
// in between. It writes based on the version that it read. So if the user adds a disk even later, the write fails with
// a conflict.
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
	case defaults.FromNowhere: // it has disks now, or the setting has changed
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
			return defaulted{}, queue.ErrStale // the cache shows a node without the changes of the live one
		}
		return out, nil
	}
	err = c.writeDefaults(ctx, live, disks, decision.Tags, log)
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
		noteRefusal(&out.problems, decision.Source, len(disks) > 0, len(decision.Tags) > 0, err)
		return out, nil // the rest of the sync must not wait until a user changes this
	}
	out.written = err == nil
	return out, err
}

// noteDefaultDisk records that the default disk cannot be created.
func noteDefaultDisk(out *defaulted, err error, again time.Duration) {
	out.problems.Disks = &defaults.Problem{
		Reason:  types.ReasonDefaultDiskFailed,
		Message: "the default disk could not be created: " + err.Error(),
	}
	out.again = soonest(again, out.again)
}

// isDueNoMore reports whether a node has got a disk from the user while its default disk was due. The default disk must
// not be added when the user removes that disk.
func isDueNoMore(n *longhorn.Node) bool {
	_, due := n.Annotations[types.AnnotationDefaultDiskDue]
	return due && len(n.Spec.Disks) > 0
}

// noteRefusal records the message for the case that the API server refuses the spec, for example because of one of the
// cluster's own policies.
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

// hasDisks also counts disks that still have a status. Otherwise a new disk with the same name would inherit the
// identity of the removed disk.
func hasDisks(n *longhorn.Node) bool { return len(n.Spec.Disks)+len(n.Status.DiskStatus) > 0 }

// configuredDisks compares the disks of the annotation with the directories at their paths, which it does not change.
func (c *Controller) configuredDisks(decision defaults.Decision, out *defaulted) map[string]longhorn.DiskSpec {
	if decision.Source != defaults.FromConfig {
		return nil
	}
	paths := make(map[string]string, len(decision.Disks))
	for _, d := range decision.Disks {
		paths[d.Path] = d.Path // the name of a disk without a name is its path
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

// foundOf converts a record for comparison by package defaults. The number of the super block and st_dev are the same,
// except on btrfs. There only the super block distinguishes file systems.
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

// look examines directories that are not disks of the node yet.
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
	log.WithField(logfields.Disk, slices.Sorted(maps.Keys(disks))).WithField("tags", tags).Info("Added the default disks and tags to the node")
	return nil
}

// recordDefaults writes the problems into the conditions of the planned status. It returns the conditions that need
// Events once the status is written.
func (c *Controller) recordDefaults(d defaulted, status *longhorn.NodeStatus) []longhorn.Condition {
	if d.kubeNode == nil {
		return nil
	}
	var news []longhorn.Condition
	status.Conditions, news = defaults.Record(status.Conditions, d.problems, c.deps.Clock.Now())
	return news
}

// tellDefaults records each condition as a Warning of both the Kubernetes node, where the user must correct the
// mistake, and the Longhorn node.
func (c *Controller) tellDefaults(d defaulted, node *longhorn.Node, news []longhorn.Condition) {
	for _, condition := range news {
		c.deps.Recorder.Event(d.kubeNode, corev1.EventTypeWarning, condition.Reason, condition.Message)
		c.deps.Recorder.Event(node, corev1.EventTypeWarning, condition.Reason, condition.Message)
	}
}
