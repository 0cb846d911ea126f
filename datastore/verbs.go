package datastore

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
)

// The verbs of a Store, one interface each. A package composes from them the interface of what it may do with a kind,
// and nothing more:
//
//	type NodeStore interface {
//		datastore.WatchedReader[*longhorn.Node]
//		datastore.Updater[*longhorn.Node]
//	}
//
// The methods of Store say what an implementation must do.
type (
	// Getter reads a copy from the cache.
	Getter[T any] interface {
		Get(name string) (T, error)
	}
	// Reader reads from the cache. The object must not be modified.
	Reader[T any] interface {
		GetRO(name string) (T, error)
	}
	// Lister lists from the cache. The objects must not be modified.
	Lister[T any] interface {
		List(selector labels.Selector) ([]T, error)
	}
	// Indexer finds objects in the cache by an index. They must not be modified.
	Indexer[T any] interface {
		ByIndex(index, value string) ([]T, error)
	}
	// LiveReader reads from the API server. The object may be modified.
	LiveReader[T any] interface {
		Live(ctx context.Context, name string) (T, error)
	}
	// LiveLister lists from the API server.
	LiveLister[T any] interface {
		ListLive(ctx context.Context, opts metav1.ListOptions) ([]T, error)
	}
	// Notifier reports the changes of the cache.
	Notifier interface {
		AddHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error)
	}
	// StaleChecker reports whether the cache lacks a write of this object.
	StaleChecker[T any] interface {
		IsStale(obj T) bool
	}
	// StaleIndexChecker reports whether the cache lacks a write among the objects with a value in an index.
	StaleIndexChecker interface {
		IsStaleIn(index, value string) bool
	}

	// Creator creates objects.
	Creator[T any] interface {
		Create(ctx context.Context, obj T) (T, error)
	}
	// DryRunCreator asks the API server whether it would create an object.
	DryRunCreator[T any] interface {
		CreateDryRun(ctx context.Context, obj T) error
	}
	// Updater writes objects, except their status, if the API server has no newer version.
	Updater[T any] interface {
		Update(ctx context.Context, obj T) (T, error)
	}
	// StatusUpdater writes the status of objects, under the same condition.
	StatusUpdater[T any] interface {
		UpdateStatus(ctx context.Context, obj T) (T, error)
	}
	// Deleter requests the deletion of objects.
	Deleter interface {
		Delete(ctx context.Context, name string, p Preconditions) error
	}
	// GraceDeleter deletes pods with another grace period than their own, or without one.
	GraceDeleter interface {
		DeleteNow(ctx context.Context, name string, p Preconditions) error
		DeleteWithin(ctx context.Context, name string, grace time.Duration, p Preconditions) error
	}
)

// The verbs that controllers use together.
type (
	// WatchedGetter is a Getter whose changes trigger a sync.
	WatchedGetter[T any] interface {
		Getter[T]
		Notifier
	}
	// WatchedReader is a Reader whose changes trigger a sync.
	WatchedReader[T any] interface {
		Reader[T]
		Notifier
	}
	// WatchedLister is a Lister whose changes trigger a sync.
	WatchedLister[T any] interface {
		Lister[T]
		Notifier
	}
	// WatchedIndexer is an Indexer whose changes trigger a sync.
	WatchedIndexer[T any] interface {
		Indexer[T]
		Notifier
	}
	// Writer is an Updater for callers that decide on cached objects: they must check IsStale first.
	Writer[T any] interface {
		Updater[T]
		StaleChecker[T]
	}
	// StatusWriter is a StatusUpdater for callers that decide on cached objects: they must check IsStale first.
	StatusWriter[T any] interface {
		StatusUpdater[T]
		StaleChecker[T]
	}
)

// A Store has all verbs.
var _ interface {
	WatchedGetter[Object]
	WatchedReader[Object]
	WatchedLister[Object]
	WatchedIndexer[Object]
	LiveReader[Object]
	LiveLister[Object]
	StaleIndexChecker
	Creator[Object]
	DryRunCreator[Object]
	Writer[Object]
	StatusWriter[Object]
	Deleter
	GraceDeleter
} = (*Store[Object])(nil)
