package api

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"sync"
	"time"
)

// renderTimeout bounds how long it takes to render a collection: for volumes, the API server is queried for the pods
// that use them.
const renderTimeout = 30 * time.Second

// collectionFeed is a collection for its streams. It watches for changes only while there are streams. It renders the
// collection once for all streams that have the same base URL.
type collectionFeed struct {
	kind  *kind
	watch func(changed func()) (stop func(), err error) // nil: the collection never changes

	renderLock chan struct{} // has room for one: a goroutine that renders the collection occupies it

	mu          sync.Mutex
	subscribers map[chan<- struct{}]struct{} // guarded by mu
	stopWatch   func()                       // guarded by mu; nil while there are no subscribers
	// guarded by mu; changes whenever the objects that the collection shows may have changed
	version uint64
	latest  rendering // guarded by mu; zero while there are no subscribers
}

// rendering is a collection as it is sent. Its data must not be modified: streams share it.
type rendering struct {
	version uint64
	base    string
	data    []byte
	sum     [sha256.Size]byte
}

func newCollectionFeed(k *kind, watch func(changed func()) (stop func(), err error)) *collectionFeed {
	return &collectionFeed{kind: k, watch: watch, renderLock: make(chan struct{}, 1), subscribers: map[chan<- struct{}]struct{}{}}
}

// subscribe makes the collectionFeed send to changed after each change. changed must have room for one element; while
// an element is in it, further changes send nothing. unsubscribe must be called once.
func (f *collectionFeed) subscribe(changed chan<- struct{}) (unsubscribe func(), err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.subscribers) == 0 && f.watch != nil {
		// Changes are reported from other goroutines, which wait until the lock is free.
		if f.stopWatch, err = f.watch(f.changed); err != nil {
			return nil, fmt.Errorf("watch %s: %w", f.kind.path(), err)
		}
	}
	f.subscribers[changed] = struct{}{}
	return func() { f.unsubscribe(changed) }, nil
}

func (f *collectionFeed) unsubscribe(changed chan<- struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.subscribers, changed)
	if len(f.subscribers) > 0 {
		return
	}
	f.latest = rendering{}
	f.version++ // changes are not noticed from now on
	if f.stopWatch != nil {
		f.stopWatch()
		f.stopWatch = nil
	}
}

// changed wakes the subscribers. It blocks on none of them.
func (f *collectionFeed) changed() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.version++
	for reader := range f.subscribers {
		select {
		case reader <- struct{}{}:
		default: // the reader was notified, and has not read that yet
		}
	}
}

// render returns the current collection.
func (f *collectionFeed) render(ctx context.Context, base string) (rendering, error) {
	ctx, cancel := context.WithTimeout(ctx, renderTimeout)
	defer cancel()
	select {
	case f.renderLock <- struct{}{}:
		defer func() { <-f.renderLock }()
	case <-ctx.Done():
		return rendering{}, ctx.Err()
	}
	f.mu.Lock()
	version, latest := f.version, f.latest
	f.mu.Unlock()
	if latest.data != nil && latest.version == version && latest.base == base {
		return latest, nil
	}
	objects, err := f.kind.list(ctx)
	if err != nil {
		return rendering{}, err
	}
	data, err := json.Marshal(f.kind.collection(base, objects))
	if err != nil {
		return rendering{}, fmt.Errorf("encode %s: %w", f.kind.path(), err)
	}
	latest = rendering{version: version, base: base, data: data, sum: sha256.Sum256(data)}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.subscribers) > 0 {
		f.latest = latest
	}
	return latest, nil
}
