package csi

import (
	"github.com/sirupsen/logrus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/longhorn-lep/longhorn-manager/util/mount"
)

// publication is a checked request to publish.
type publication struct {
	// staged says how the volume is staged, or must be staged again.
	staged   staging
	target   string
	readOnly bool
	// exclusive: no other pod may have the volume (ReadWriteOncePod).
	exclusive bool
}

// publish binds the staged volume to the pod's path. It may be repeated. The device of a staging may have died since:
// the data plane stopped, and the volume was attached again. In that case publish first repeats the staging, and also
// replaces a bind left over from it.
//
// A read-only block volume is bound read-only, which prevents the file from being replaced. The container runtime
// decides, from the pod's own readOnly, what a container may do to the device itself.
func (n *node) publish(p publication) error {
	if p.staged.share != nil {
		return n.publishShare(p)
	}
	volume, source := p.staged.volume, p.staged.path
	if p.staged.capability.block {
		source = stagedDevice(source, volume)
	}
	staged, err := n.mounts.Look(source)
	if err != nil {
		return status.Errorf(codes.Internal, "mounting volume %s for a pod: %v", volume, err)
	}
	if !staged.Mounted || !staged.Broken && staged.Block != p.staged.capability.block {
		return status.Errorf(codes.FailedPrecondition, "mounting volume %s for a pod: it is not mounted at its staging path %s", volume, source)
	}
	if err := n.stage(p.staged); err != nil {
		return err
	}
	if staged, err = n.mounts.Look(source); err != nil {
		return status.Errorf(codes.Internal, "mounting volume %s for a pod: %v", volume, err)
	}
	done, err := n.isCurrent(p.target, staged.Device)
	if err != nil {
		return status.Errorf(codes.Internal, "mounting volume %s for a pod: %v", volume, err)
	}
	if done {
		return nil
	}
	if err := n.checkExclusive(p, source); err != nil {
		return err
	}
	var options []string
	if p.readOnly {
		options = []string{"ro"}
	}
	if p.staged.capability.block {
		err = n.mounts.BindFile(source, p.target, options)
	} else {
		err = n.mounts.BindDirectory(source, p.target, options)
	}
	if err != nil {
		return status.Errorf(codes.Internal, "mounting volume %s for a pod: %v", volume, err)
	}
	n.log.WithFields(logrus.Fields{"volume": volume, "path": p.target, "readOnly": p.readOnly}).Info("Mounted the volume for a pod")
	return nil
}

// checkExclusive refuses a second pod for a volume that at most one pod may have.
func (n *node) checkExclusive(p publication, source string) error {
	if !p.exclusive {
		return nil
	}
	others, err := n.mounts.References(source)
	if err != nil {
		return status.Errorf(codes.Internal, "mounting volume %s for a pod: %v", p.staged.volume, err)
	}
	for _, other := range others {
		if other != source && other != p.target {
			return status.Errorf(codes.FailedPrecondition, "mounting volume %s for a pod: only one pod may use it, and it is already mounted at %s", p.staged.volume, other)
		}
	}
	return nil
}

// unpublish removes the bind and the path. It may be repeated.
func (n *node) unpublish(volume, target string) error {
	err := n.unmount(volume, target)
	if err == nil {
		err = n.mounts.Remove(target)
	}
	if err != nil {
		return unmountProblem("unmounting "+target, err)
	}
	n.log.WithField("path", target).Info("Unmounted the volume of a pod")
	return nil
}

// statistics measures the file system or device that is mounted at a path.
func (n *node) statistics(path string) (mount.Statistics, error) {
	entry, err := n.mounts.Listed(path)
	if err != nil {
		return mount.Statistics{}, unmountProblem("measuring "+path, err)
	}
	if entry.IsNFS() {
		st, err := n.mounts.Statistics(path)
		if err != nil {
			return mount.Statistics{}, unmountProblem("measuring "+path, err)
		}
		return st, nil
	}
	point, err := n.mounts.Look(path)
	switch {
	case err != nil:
		return mount.Statistics{}, status.Errorf(codes.Internal, "measuring %s: %v", path, err)
	case !point.Mounted:
		return mount.Statistics{}, status.Errorf(codes.NotFound, "measuring %s: nothing is mounted there", path)
	case point.Broken:
		return mount.Statistics{}, status.Errorf(codes.Internal, "measuring %s: the mount there is broken", path)
	}
	st, err := n.mounts.Statistics(path)
	if err != nil {
		return mount.Statistics{}, status.Errorf(codes.Internal, "measuring %s: %v", path, err)
	}
	return st, nil
}
