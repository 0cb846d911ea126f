// Package remount answers: which pods must be restarted after their volume failed and was attached again? These pods
// have mounted a dead device, and only a new mount helps. The package runs on the leader.
//
//	data plane stopped ──► status.remountRequestedAt ──► the pods that use the volume are recorded ──►
//	volume attached again ──► 5 s ──► the recorded pods on its node are deleted ──► their
//	controller creates others, which mount the new device
//
// The record (record.go) is stored, so a new leader deletes neither replacements nor pods that were spared. After ten
// minutes nothing is deleted.
//
// The pods of a shared volume mount it over NFS and are not affected by these failures. They are restarted when the
// volume's share reports that its clients have lost their open files and locks
// (ShareManager.status.remountRequestedAt). This happens within ten minutes, once the volume is served. It concerns the
// pods on all nodes, if they started before the loss and have run a container.
//
// The package deletes pods, and owns an annotation of the Volume, the record. It must not know engines, replicas or
// mounts. It does not delete a pod that no controller would create again, or that a setting spares. An Event of the
// volume tells its owner about such a pod.
package remount
