package volume

import (
	"slices"
	"sync"
	"time"

	kubetypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

// assumeFor is how long a placed replica reserves its room while the cache does not show it: longer than any delay of
// the cache.
const assumeFor = 5 * time.Minute

// reservations are the replicas that were placed and that the cache does not show yet. Without them, volumes that are
// placed at the same time would all see the same free room.
//
//	placed --> assumed --> created --> the cache shows it: forgotten
//	                   \-> refused: released
type reservations struct {
	clock clock.PassiveClock

	mu      sync.Mutex
	assumed map[string]assumption // by replica name; guarded by mu
	sizes   map[string]largerSize // by volume name; guarded by mu
}

type assumption struct {
	replica *longhorn.Replica
	until   time.Time
}

func newReservations(c clock.PassiveClock) *reservations {
	return &reservations{clock: c, assumed: map[string]assumption{}, sizes: map[string]largerSize{}}
}

func (r *reservations) assume(replicas []*longhorn.Replica) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range replicas {
		r.assumed[o.Name] = assumption{o, r.clock.Now().Add(assumeFor)}
	}
}

// release frees the room of a replica that was certainly not created.
func (r *reservations) release(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.assumed, name)
}

// releaseOthers frees the room that earlier attempts of a volume reserved, once a read of the API server has shown that
// all replicas that they created are in the cache.
func (r *reservations) releaseOthers(volume string, but []*longhorn.Replica) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, a := range r.assumed {
		isNew := slices.ContainsFunc(but, func(o *longhorn.Replica) bool { return o.Name == name })
		if a.replica.Spec.VolumeName == volume && !isNew {
			delete(r.assumed, name)
		}
	}
}

// with adds the assumed replicas of other volumes to the replicas that the cache shows. It forgets an assumed replica
// that the cache shows now.
func (r *reservations) with(cached []*longhorn.Replica, volume string) []*longhorn.Replica {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.assumed) == 0 {
		return cached
	}
	for _, o := range cached {
		delete(r.assumed, o.Name)
	}
	all := append(make([]*longhorn.Replica, 0, len(cached)+len(r.assumed)), cached...)
	for name, a := range r.assumed {
		switch {
		case r.clock.Now().After(a.until):
			delete(r.assumed, name)
		case a.replica.Spec.VolumeName != volume:
			all = append(all, a.replica)
		}
	}
	return all
}

// largerSize is the size that a volume's replicas are about to get.
type largerSize struct {
	uid   kubetypes.UID
	size  longhorn.Bytes
	until time.Time
}

// assumeSize reserves room for the replicas of a volume that is about to grow, until the cache shows that its size is
// recorded.
func (r *reservations) assumeSize(v *longhorn.Volume, size longhorn.Bytes) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sizes[v.Name] = largerSize{v.UID, size, r.clock.Now().Add(assumeFor)}
}

// sizeOf is the size that the replicas of a volume have, or are about to get.
func (r *reservations) sizeOf(v *longhorn.Volume) longhorn.Bytes {
	r.mu.Lock()
	defer r.mu.Unlock()
	a, ok := r.sizes[v.Name]
	switch {
	case !ok:
		return v.Status.Size
	case a.uid != v.UID || a.size <= v.Status.Size || r.clock.Now().After(a.until):
		delete(r.sizes, v.Name)
		return v.Status.Size
	}
	return a.size
}

// promised returns the replicas with the size that their volume has recorded, or is about to record, even where their
// specs do not request it yet. Until they do, nothing else may use that room.
func (c *Controller) promised(replicas []*longhorn.Replica) []*longhorn.Replica {
	var all []*longhorn.Replica
	for i, r := range replicas {
		v, err := c.deps.Volumes.GetRO(r.Spec.VolumeName)
		if err != nil || !ownedBy(r, v) {
			continue
		}
		if size := c.placed.sizeOf(v); size > r.Spec.VolumeSize {
			if all == nil {
				all = slices.Clone(replicas)
			}
			all[i] = r.DeepCopy()
			all[i].Spec.VolumeSize = size
		}
	}
	if all == nil {
		return replicas
	}
	return all
}
