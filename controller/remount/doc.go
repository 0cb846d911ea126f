// Package remount restarts the pods whose volume went away under them and came back:
// they have mounted a device that is dead, and only a new mount helps. It runs on the
// leader.
//
//	data plane ended ──► volume attached again, status.remountRequestedAt ──► 5 s ──►
//	pods on that node that use the volume and started before ──► deleted ──► their
//	controller makes new ones, which mount the new device
//
// The pods of a shared volume mount it over NFS and survive all that. They are restarted when its share says that its
// clients have lost their open files and locks: ShareManager.status.remountRequestedAt, within ten minutes, once the
// volume is served; on all nodes, if they started before and have run anything.
//
// It deletes pods, and owns no field. It must not know engines, replicas or mounts. It
// leaves a pod alone that no controller would make again, or that a setting spares: the
// volume's Event tells its owner.
package remount
