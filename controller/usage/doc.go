// Package usage notes at each volume which PersistentVolume, claim and pods use it, and which did so last: people and
// tools ask for that when the pods are gone. It runs on the leader, over the whole cluster.
//
//	PersistentVolume, its claim    from the cache, at each change
//	pods                           listed once an attachment, a minute after it began or when it ends: they are not watched
//
// It owns Volume.status.kubernetesStatus. It must not know engines, replicas or tickets.
package usage
