package volume

import (
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// leftoverTime is how long the children of a deleted volume may still exist after a volume of the same name was
// created. The garbage collector and their own finalizers remove them. If that takes longer, a condition reports it.
const leftoverTime = time.Minute

// live reads an object from the API server.
type live func(ctx context.Context) (metav1.Object, error)

func liveFrom[T metav1.Object](store datastore.LiveReader[T], name string,
) live {
	return func(ctx context.Context) (metav1.Object, error) { return store.Live(ctx, name) }
}

// ifExists returns err, the error of a child's creation, unless the API server said that an object of that name
// exists. Then it returns queue.ErrStale if that object is the volume's and the cache is late. Otherwise it returns a
// refusal that names the owner. It never takes over the object: data of another volume may depend on it.
func (c *Controller) ifExists(ctx context.Context, v *longhorn.Volume, err error, read live) error {
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	o, failed := read(ctx)
	if apierrors.IsNotFound(failed) {
		return queue.ErrStale // it was deleted in between
	}
	if failed != nil {
		return fmt.Errorf("read the existing object: %w", failed)
	}
	return c.obstructs(v, o, err)
}

// obstructs returns the result for an object that has the name of a child of the volume:
//
//	the object                                 the result
//	is the volume's child                      queue.ErrStale: the cache is late
//	is left from an earlier volume, recently   queue.ErrStale: Kubernetes removes it soon
//	anything else                              a refusal: only a person knows the purpose of the object
func (c *Controller) obstructs(v *longhorn.Volume, o metav1.Object, err error) error {
	if ownedBy(o, v) && types.VolumeOf(o) == v.Name {
		return queue.ErrStale
	}
	since := v.CreationTimestamp.Time
	if d := o.GetDeletionTimestamp(); d != nil && d.After(since) {
		since = d.Time
	}
	if !ownedBy(o, v) && c.deps.Clock.Since(since) < leftoverTime {
		return queue.ErrStale
	}
	return queue.Obstructed(fmt.Errorf("%w: %s", err, whose(v, o)))
}

// whose says for users why an object is not the volume's child, and what to do about it.
func whose(v *longhorn.Volume, o metav1.Object) string {
	if d := o.GetDeletionTimestamp(); d != nil {
		return fmt.Sprintf("%s was deleted at %s, but its finalizers (%s) block the deletion", o.GetName(), types.Timestamp(d.Time), strings.Join(o.GetFinalizers(), ", "))
	}
	if ownedBy(o, v) {
		return fmt.Sprintf("%s is owned by this volume, but its spec names volume %q; delete it to continue", o.GetName(), types.VolumeOf(o))
	}
	for _, ref := range o.GetOwnerReferences() {
		return fmt.Sprintf("%s is owned by %s %s with UID %s, not by this volume; delete it to continue", o.GetName(), ref.Kind, ref.Name, ref.UID)
	}
	return o.GetName() + " has no owner; delete it to continue"
}
