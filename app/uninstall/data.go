package uninstall

import (
	"fmt"
	"slices"
	"time"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// volumesAndData deletes volumes and waits for the daemons, which delete the data and the objects of their nodes:
//
//	daemons                                replica on a node with one   on a node without one       engine, volume
//	run somewhere                          waits                        waits, then is stripped     wait
//	run nowhere, their DaemonSet is there  –                            waits, then is stripped     wait, then as below
//	run nowhere                            –                            is stripped at once         is stripped last
//
// An engine is stripped after all replicas are gone, a volume after all replicas and engines are gone. If the disk of
// a replica on a node with a daemon is lost, the replica is stripped as on a node without a daemon. A stripped
// replica leaves its data behind. Replicas are deleted before their volume is removed, so that the next run finds
// them deleted if this one is interrupted.
func volumesAndData(s State, p *Plan) {
	for _, v := range s.of(volumes) {
		if !v.isDeleted() {
			p.Actions = append(p.Actions, Action{Verb: Delete, Kind: volumes, Object: v})
		}
	}
	if len(p.Actions) > 0 {
		return
	}
	owned := map[string]bool{} // volumes: the leader deletes their children
	for _, v := range s.of(volumes) {
		owned[v.Name] = s.isHandled(v)
	}
	for _, r := range s.of(replicas) {
		if !r.isDeleted() && owned[r.volume()] {
			p.Waits = append(p.Waits, waited(replicas, r))
			continue
		}
		p.end(replicas, r, s.canStrip(r), s.remainingData(r))
	}
	for _, e := range s.of(engines) {
		if !e.isDeleted() && owned[e.volume()] {
			p.Waits = append(p.Waits, "engines/"+e.Name)
			continue
		}
		p.end(engines, e, !s.isHandled(e) && len(s.of(replicas)) == 0, "")
	}
	for _, v := range s.of(volumes) {
		p.end(volumes, v, !s.isHandled(v) && len(s.of(replicas)) == 0 && len(s.of(engines)) == 0, "")
	}
}

// isHandled reports whether a running daemon finishes the deletion of an object, or a daemon may come back soon to do
// it.
func (s State) isHandled(o Object) bool {
	if s.hasDaemon("") {
		return true
	}
	return s.isInstalled(types.AppManager) && s.Now.Before(o.DeletedAt.Add(s.untilDaemon("")))
}

// untilDaemon returns how long to wait for a daemon on a node without one, or, if node is "", for any daemon. If the
// kubelet of the node answers, it gets enough time to start the daemon, even if Patience for dead nodes is short.
func (s State) untilDaemon(node string) time.Duration {
	answers := func(o Object) bool { return o.Ready && (node == "" || o.Name == node) }
	if slices.ContainsFunc(s.Objects[kubeNodes], answers) {
		return max(s.Patience, DefaultPatience)
	}
	return s.Patience
}

// canStrip reports whether no component is left that could delete a replica's data.
func (s State) canStrip(r Object) bool {
	switch {
	case r.Node == "" || !s.isHandled(r):
		return true
	case !s.hasDaemon(r.Node):
		return !s.Now.Before(r.DeletedAt.Add(s.untilDaemon(r.Node)))
	}
	return s.isDiskLost(r) && !s.Now.Before(r.DeletedAt.Add(s.Patience))
}

// diskReasons are the reasons by which a daemon reports that it cannot remove a replica's data because the disk is
// missing.
var diskReasons = []string{
	types.ReasonDiskNotFound, types.ReasonDiskNotReady, types.ReasonDiskUnmounted, types.ReasonDiskReplaced,
	types.ReasonDiskMissing, types.ReasonDiskMismatch, types.ReasonDiskNotResponding,
}

// isDiskLost reports whether the daemon of a replica's node waits for the replica's disk. The condition may be old,
// so isDiskLost also requires that no daemon sees the disk now. A daemon that sees the disk removes the data, which
// may take long.
func (s State) isDiskLost(r Object) bool {
	return slices.Contains(diskReasons, r.Reason) && !slices.ContainsFunc(s.of(nodes), func(n Object) bool {
		return slices.Contains(n.ReadyDisks, r.Disk) && s.hasDaemon(n.Name)
	})
}

func (s State) remainingData(r Object) string {
	if r.Path == "" {
		return ""
	}
	reason := "no daemon of this installation runs there"
	if s.hasDaemon(r.Node) {
		reason = r.Reason + ": " + r.Message
	}
	return fmt.Sprintf("the data of replica %s stays in %s on node %s: %s", r.Name, r.Path, r.Node, reason)
}

// lostPersistentVolumes deletes the PersistentVolumes of this driver without an existing volume. It removes the
// finalizers that the CSI controller would have removed. It does not wait: Kubernetes keeps a PersistentVolume until
// its claim is deleted.
func lostPersistentVolumes(s State, p *Plan) {
	for _, o := range s.of(persistentVolumes) {
		if slices.ContainsFunc(s.Objects[volumes], func(v Object) bool { return v.Name == o.Volume }) {
			continue
		}
		if !o.isDeleted() || o.isHeld(persistentVolumes) {
			p.end(persistentVolumes, o, true, "")
		}
	}
}
