// Package usage records for each volume which PersistentVolume, claim and pods use it, and which used it last. Users
// and tools need this when the pods are gone. It runs on the leader and handles the whole cluster.
//
//	PersistentVolume, its claim    from the cache, at each change
//	pods                           listed once per attachment, some time after its start or at its end: not watched
//
// It owns Volume.status.kubernetesStatus. It must not know engines, replicas or tickets.
package usage
