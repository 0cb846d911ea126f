// Package children builds the objects that belong to a volume: its attachment, its engine and its replicas. It owns
// their names, their owner, their labels, and the specs with which they are created.
//
// It must not know when an object is created, where a replica is placed, or how the objects are written.
package children
