// Package queue is the one worker loop that all controllers share: a queue of
// keys, the workers that take them, and what becomes of a key after its sync.
//
//	handler ──keys──► Add ──► [ key, key … ] ──► worker: Sync(key)
//	                   ▲                             │
//	                   │   done, or gone, or permanent ──► forgotten
//	                   ├── wait (Result.RequeueAfter) ◄─────────┤
//	                   ├── an object is missing: backoff, quiet ◄┤
//	                   ├── stale or conflict: backoff, quiet ◄──┤
//	                   └── any other error: backoff, logged ◄───┘
//
// A key is in the queue once, however often it is added, and is never synced by
// two workers at a time. No key is ever given up: the backoff, 5 ms doubling to
// 30 s, is capped instead.
//
// The package must not know any kind.
package queue
