// Package remount restarts the pods whose volume went away under them and came back:
// they have mounted a device that is dead, and only a new mount helps. It runs on the
// leader.
//
//	data plane ended ──► status.remountRequestedAt ──► the pods that use the volume are recorded ──►
//	volume attached again ──► 5 s ──► those of them on its node are deleted ──► their
//	controller creates others, which mount the new device
//
// The record (record.go) is stored, so a new leader deletes neither replacements nor pods that were spared. After ten
// minutes nothing is deleted.
//
// The pods of a shared volume mount it over NFS and survive all that. They are restarted when its share says that its
// clients have lost their open files and locks: ShareManager.status.remountRequestedAt, within ten minutes, once the
// volume is served; on all nodes, if they started before and have run anything.
//
// It deletes pods, and owns an annotation of the Volume, the record. It must not know engines, replicas or mounts. It
// leaves a pod alone that no controller would make again, or that a setting spares: the
// volume's Event tells its owner.
package remount
