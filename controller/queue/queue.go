package queue

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"github.com/longhorn-lep/longhorn-manager/util/logfields"
)

// The limits of the backoff of a key with a Sync that fails again and again.
const (
	minBackoff = 5 * time.Millisecond
	maxBackoff = 30 * time.Second
)

// Result is the outcome of a Sync that succeeded.
type Result struct {
	// RequeueAfter, if positive, brings the key back after that time. A Sync uses it to wait for changes that cause no
	// event.
	RequeueAfter time.Duration
}

// Env is the environment that every controller gets from its process.
type Env struct {
	Clock    clock.WithTicker
	Recorder record.EventRecorder // of Events; the queue itself records none
	Log      *logrus.Entry
	Metrics  *Metrics // nil: nothing is counted
}

// Options configure a Queue. Workers below 1 counts as 1.
type Options[K comparable] struct {
	Env
	// Name is the controller's name, in logs and metrics.
	Name    string
	Workers int
	// Sync brings the cluster nearer to the state that the object of the key specifies. It must be repeatable. It must
	// not wait for anything except the API server or the data plane. It must return when ctx is done.
	Sync func(ctx context.Context, key K) (Result, error)
}

// Queue is a set of keys that wait for their Sync. K is a small value.
type Queue[K comparable] struct {
	options Options[K]
	log     *logrus.Entry
	queue   workqueue.TypedRateLimitingInterface[K]
}

// New creates a Queue. It syncs nothing before Run, but keys may already be added.
func New[K comparable](o Options[K]) *Queue[K] {
	if o.Workers < 1 {
		o.Workers = 1
	}
	return &Queue[K]{
		options: o,
		log:     o.Log.WithField(logfields.Controller, o.Name),
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[K](minBackoff, maxBackoff),
			workqueue.TypedRateLimitingQueueConfig[K]{Clock: o.Clock}),
	}
}

// Add makes a worker sync the key soon, and once more if it is being synced now.
func (q *Queue[K]) Add(key K) { q.queue.Add(key) }

// AddAfter makes a worker sync the key after d, unless an earlier time was requested.
func (q *Queue[K]) AddAfter(key K, d time.Duration) { q.queue.AddAfter(key, d) }

// Run works until ctx is done. It returns nil when the syncs under way have returned. It drops keys that still wait,
// because the next process starts from a full list. It must be called once.
func (q *Queue[K]) Run(ctx context.Context) error {
	if ctx.Err() != nil { // the caches were never filled
		q.queue.ShutDown()
		return nil
	}
	q.log.Info("Starting controller")
	var workers sync.WaitGroup
	for range q.options.Workers {
		workers.Go(func() {
			for q.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	q.queue.ShutDown()
	workers.Wait()
	q.log.Info("Stopped controller")
	return nil
}

// next syncs one key; it returns false when the queue is shut down and empty.
func (q *Queue[K]) next(ctx context.Context) bool {
	key, shutdown := q.queue.Get()
	if shutdown {
		return false
	}
	defer q.queue.Done(key)
	if ctx.Err() != nil {
		return true
	}
	start := q.options.Clock.Now()
	result, err := q.options.Sync(withLog(ctx, q.log.WithField(logfields.Key, fmt.Sprint(key))), key)
	c := classify(ctx, err)
	q.options.Metrics.observe(q.options.Name, c, q.options.Clock.Since(start))
	q.requeue(key, c, result, err)
	return true
}

// patience is how many syncs in a row may find that an object is missing before this counts as an error.
const patience = 5

// requeue decides when the key comes back.
func (q *Queue[K]) requeue(key K, c class, result Result, err error) {
	log := q.log.WithField(logfields.Key, fmt.Sprint(key))
	switch c {
	case classDone:
		q.queue.Forget(key)
		if err == nil && result.RequeueAfter > 0 {
			q.queue.AddAfter(key, result.RequeueAfter)
		}
	case classStale:
		log.WithError(err).Debug("The cache is stale or the object has changed, syncing again")
		q.queue.AddRateLimited(key)
	case classMissing:
		// Most often the object was deleted in between, and the next sync detects that.
		if failures := q.queue.NumRequeues(key) + 1; failures > patience {
			log.WithError(err).WithField("failures", failures).Error("An object that the sync needs does not exist, trying again")
		} else {
			log.WithError(err).Debug("An object that the sync needs does not exist, trying again")
		}
		q.queue.AddRateLimited(key)
	case classPermanent:
		log.WithError(err).Error("Sync cannot succeed until something changes")
		q.queue.Forget(key)
	case classStopped:
		log.WithError(err).Debug("The shutdown interrupted the sync")
	case classFailed:
		log.WithError(err).WithField("failures", q.queue.NumRequeues(key)+1).Error("Sync failed, trying again")
		q.queue.AddRateLimited(key)
	}
}
