package api

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"sync"
	"time"
)

// renderTimeout bounds the making of a collection: volumes ask the API server for the pods that use them.
const renderTimeout = 30 * time.Second

// feed is a collection as its streams see it. It watches for changes only while there are streams, and makes the collection once for
// all that have the same base URL.
type feed struct {
	kind  *kind
	watch func(changed func()) (stop func(), err error) // nil: the collection never changes

	turn chan struct{} // has room for one: who makes the collection

	mu      sync.Mutex
	readers map[chan<- struct{}]struct{} // guarded by mu
	unwatch func()                       // guarded by mu; nil while there are no readers
	version uint64                       // guarded by mu; of what the collection is made of
	latest  rendering                    // guarded by mu; zero while there are no readers
}

// rendering is a collection as it is sent. Its data must not be modified: streams share it.
type rendering struct {
	version uint64
	base    string
	data    []byte
	sum     [sha256.Size]byte
}

func newFeed(k *kind, watch func(changed func()) (stop func(), err error)) *feed {
	return &feed{kind: k, watch: watch, turn: make(chan struct{}, 1), readers: map[chan<- struct{}]struct{}{}}
}

// join has the feed send to changed, which must have room for one, after each change. A change that comes while one waits there
// is not sent again. leave must be called once.
func (f *feed) join(changed chan<- struct{}) (leave func(), err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.readers) == 0 && f.watch != nil {
		// Changes are reported from other goroutines, which wait until the lock is free.
		if f.unwatch, err = f.watch(f.changed); err != nil {
			return nil, fmt.Errorf("watch %s: %w", f.kind.path(), err)
		}
	}
	f.readers[changed] = struct{}{}
	return func() { f.leave(changed) }, nil
}

func (f *feed) leave(changed chan<- struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.readers, changed)
	if len(f.readers) > 0 {
		return
	}
	f.latest = rendering{}
	f.version++ // what changes from now on is not seen
	if f.unwatch != nil {
		f.unwatch()
		f.unwatch = nil
	}
}

// changed wakes the readers. It blocks on none of them.
func (f *feed) changed() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.version++
	for reader := range f.readers {
		select {
		case reader <- struct{}{}:
		default: // it was told, and has not looked yet
		}
	}
}

// render returns the collection as it is now.
func (f *feed) render(ctx context.Context, base string) (rendering, error) {
	ctx, cancel := context.WithTimeout(ctx, renderTimeout)
	defer cancel()
	select {
	case f.turn <- struct{}{}:
		defer func() { <-f.turn }()
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
	if len(f.readers) > 0 {
		f.latest = latest
	}
	return latest, nil
}
