// Package queue is the worker loop that all controllers share. It has a queue of keys, and workers that take them. It
// decides when a key is synced again.
//
//	handler ──keys──► Add ──► [ key, key … ] ──► worker: Sync(key)
//	                   ▲                             │
//	                   │   done, or gone, or permanent ──► forgotten
//	                   ├── wait (Result.RequeueAfter) ◄─────────┤
//	                   ├── an object is missing: backoff, quiet ◄┤
//	                   ├── stale or conflict: backoff, quiet ◄──┤
//	                   └── any other error: backoff, logged ◄───┘
//
// A key is in the queue once, however often it is added, and two workers never sync it at the same time. The queue
// never abandons a key. Instead, the backoff starts at 5 ms, doubles, and is limited to 30 s.
//
// The package must not know any kind.
package queue
