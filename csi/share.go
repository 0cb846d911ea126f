package csi

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"

	"github.com/sirupsen/logrus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/longhorn-lep/longhorn-manager/util/mount"
)

// share says how a shared volume is mounted.
type share struct {
	export  mount.Export
	options mount.NFSOptions
	// ignored are mount options of a PersistentVolume that cannot be used to mount a share. A claim with them is
	// refused. Earlier releases created volumes with them, which must still be mounted.
	ignored []string
}

// checkShareMountOptions refuses mount options that would be ignored for a shared volume.
func checkShareMountOptions(options []string) error {
	if _, refused := mount.DefaultNFSOptions.WithMountOptions(options); len(refused) > 0 {
		return fmt.Errorf("mountOptions: %s: not supported for a shared volume, which is mounted over NFS version 4; use parameter %s for options of the kernel's NFS client",
			strings.Join(refused, ", "), paramNFSOptions)
	}
	return nil
}

// shareOf returns how to mount a volume that is published at an endpoint; nil: it has a device.
func shareOf(req stagingRequest, c capability) (*share, error) {
	volume, endpoint := req.GetVolumeId(), req.GetPublishContext()[keyShareEndpoint]
	switch {
	case endpoint == "" && c.isShared():
		return nil, status.Errorf(codes.FailedPrecondition, "mounting volume %s: its claim allows several nodes, but the attachment has no %s", volume, keyShareEndpoint)
	case endpoint == "":
		return nil, nil
	case c.block:
		return nil, status.Errorf(codes.InvalidArgument, "mounting volume %s: the volume is served over NFS, and NFS has no block devices", volume)
	}
	server, err := parseEndpoint(endpoint, volume)
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "mounting volume %s: %s %q %v", volume, keyShareEndpoint, endpoint, err)
	}
	options := mount.DefaultNFSOptions
	if text := req.GetVolumeContext()[paramNFSOptions]; text != "" {
		if options, err = mount.ParseNFSOptions(text); err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "parameter %s: value %q %v", paramNFSOptions, text, err)
		}
	}
	s := &share{export: mount.Export{Server: server, Path: "/" + volume}}
	s.options, s.ignored = options.WithMountOptions(c.mountFlags)
	return s, nil
}

// parseEndpoint returns the address in nfs://<address>/<volume>. An error is a clause that follows the value.
func parseEndpoint(endpoint, volume string) (netip.Addr, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "nfs" || u.Port() != "" || u.Path != "/"+volume {
		return netip.Addr{}, fmt.Errorf("must be nfs://<address>/%s", volume)
	}
	address, err := netip.ParseAddr(u.Hostname())
	if err != nil || address.Zone() != "" {
		return netip.Addr{}, fmt.Errorf("must contain an IP address")
	}
	return address.Unmap(), nil
}

// stageShare mounts the volume's export at the staging path, and returns the export. It may be repeated: a mount of
// that export stays if its server answers, and any other mount there is replaced. It touches no device.
//
// The address with which the volume was published may be permanently dead: the Service of the share was deleted, and
// another Service got its address. Kubernetes stores the address as long as a pod on the node uses the volume. So if
// nothing serves at that address, the Service's present address counts.
func (n *node) stageShare(s staging) (mount.Export, error) {
	given := s.share.export
	entry, err := n.mounts.Listed(s.path)
	if err == nil && entry.IsNFS() && entry.Source != given.Source() {
		if moved, ok := n.movedTo(s); ok && entry.Source == moved.Source() {
			return moved, n.stageShareAt(s, moved) // an earlier call mounted it
		}
	}
	failed := n.stageShareAt(s, given)
	if failed == nil {
		return given, nil
	}
	moved, ok := n.movedTo(s)
	if !ok {
		return given, failed
	}
	n.log.WithError(failed).WithFields(logrus.Fields{"volume": s.volume, "export": moved.Source()}).Warn("The share cannot be mounted at the address in the attachment. Its Service has another address now")
	return moved, n.stageShareAt(s, moved)
}

// movedTo is the volume's export at the present address of its Service, if that differs from the published address.
func (n *node) movedTo(s staging) (mount.Export, bool) {
	if n.serviceAddress == nil {
		return mount.Export{}, false
	}
	address, err := n.serviceAddress(s.volume)
	if err != nil || address == s.share.export.Server {
		return mount.Export{}, false
	}
	return mount.Export{Server: address, Path: s.share.export.Path}, true
}

func (n *node) stageShareAt(s staging, export mount.Export) error {
	keep, err := n.isMountOfShare(s, export)
	switch {
	case errors.Is(err, mount.ErrStuck):
		return status.Errorf(codes.Unavailable, "mounting volume %s: %v", s.volume, err)
	case status.Code(err) == codes.Unavailable:
		return err
	case err != nil:
		return status.Errorf(codes.Internal, "mounting volume %s: %v", s.volume, err)
	case keep:
		return nil
	}
	if len(s.share.ignored) > 0 {
		n.log.WithFields(logrus.Fields{"volume": s.volume, "options": s.share.ignored}).Warn("Mounting a shared volume without the mount options that NFS does not have")
	}
	if n.beforeNFS != nil {
		n.beforeNFS()
	}
	err = n.mounts.MountNFS(export, s.path, s.share.options)
	switch {
	case errors.Is(err, mount.ErrNoNFSClient):
		return status.Errorf(codes.FailedPrecondition, "mounting volume %s, which is shared over NFS: %v", s.volume, err)
	case errors.Is(err, mount.ErrNoServer), errors.Is(err, mount.ErrStuck):
		return status.Errorf(codes.Unavailable, "mounting volume %s: %v", s.volume, err)
	case err != nil:
		return status.Errorf(codes.Internal, "mounting volume %s: %v", s.volume, err)
	}
	n.log.WithFields(logrus.Fields{"volume": s.volume, "path": s.path, "export": export.Source()}).Info("Mounted a shared volume")
	return nil
}

// isMountOfShare reports whether the volume's export is mounted at the staging path, and is healthy. It removes any
// other mount.
//
// A mount may be healthy although its server does not answer in time: the share may be moving to another node, and the
// calls of pods wait for that. Such a mount is replaced only if no pod uses it.
func (n *node) isMountOfShare(s staging, export mount.Export) (bool, error) {
	entry, err := n.mounts.Listed(s.path)
	log := n.log.WithFields(logrus.Fields{"volume": s.volume, "path": s.path})
	switch {
	case err != nil, entry == (mount.Entry{}):
		return false, err
	case !entry.IsNFS():
		log.Warn("Removing the mount of a device: the volume is shared now")
		return false, n.unmount(s.volume, s.path)
	case entry.Source != export.Source():
		log.WithField("export", entry.Source).Warn("Removing the mount of another export: the volume is served at another address now")
		return false, n.mounts.DetachNFS(s.path, mount.FailCalls)
	}
	silent := n.mounts.Answers(s.path)
	if silent == nil {
		return true, nil
	}
	if !errors.Is(silent, mount.ErrStale) {
		users, err := n.mounts.Others(entry)
		if err != nil {
			return false, err
		}
		if len(users) > 0 {
			return false, status.Errorf(codes.Unavailable, "mounting volume %s: the NFS server of its existing mount does not answer: %v", s.volume, silent)
		}
	}
	log.WithError(silent).Warn("Removing the mount of a share that does not answer")
	return false, n.mounts.DetachNFS(s.path, mount.FailCalls)
}

// publishShare binds a staged export to the pod's path. It may be repeated.
//
// A pod's writes must never end up in a directory of the node. So publishShare binds only a mount that is the volume's
// export according to the mount table, and checks its own bind again.
func (n *node) publishShare(p publication) error {
	volume := p.staged.volume
	failed := func(err error) error { return unmountProblem("mounting volume "+volume+" for a pod", err) }
	staged, err := n.mounts.Listed(p.staged.path)
	if err != nil {
		return failed(err)
	}
	if staged == (mount.Entry{}) {
		return status.Errorf(codes.FailedPrecondition, "mounting volume %s for a pod: it is not mounted at its staging path %s", volume, p.staged.path)
	}
	export, err := n.stageShare(p.staged)
	if err != nil {
		return err
	}
	if staged, err = n.mounts.Listed(p.staged.path); err != nil {
		return failed(err)
	}
	if !staged.IsNFS() || staged.Source != export.Source() {
		return status.Errorf(codes.FailedPrecondition, "mounting volume %s for a pod: its NFS export is not mounted at %s", volume, p.staged.path)
	}
	bound := mount.Entry{Path: p.target, Type: staged.Type, Source: staged.Source, Device: staged.Device, ReadOnly: staged.ReadOnly || p.readOnly}
	found, err := n.mounts.Listed(p.target)
	switch {
	case err != nil:
		return failed(err)
	case isSameMount(found, bound):
		return nil
	case found != (mount.Entry{}):
		n.log.WithField("path", p.target).Warn("Removing a mount that differs from the requested mount of the share")
		if err := n.clear(volume, found); err != nil {
			return failed(err)
		}
	}
	if err := n.checkExclusiveShare(p, staged); err != nil {
		return err
	}
	if err := n.mounts.BindNFS(staged, p.target, p.readOnly); err != nil {
		return failed(err)
	}
	if found, err = n.mounts.Listed(p.target); err != nil || !isSameMount(found, bound) {
		return status.Errorf(codes.Internal, "mounting volume %s for a pod: the mount at %s has type %s and source %s, and is not its NFS export: %v",
			volume, p.target, found.Type, found.Source, errors.Join(err, n.mounts.DetachNFS(p.target, mount.KeepCalls)))
	}
	n.log.WithFields(logrus.Fields{"volume": volume, "path": p.target, "readOnly": p.readOnly}).Info("Mounted a shared volume for a pod")
	return nil
}

// isSameMount compares all fields except the path, which the mount table shows without symbolic links.
func isSameMount(a, b mount.Entry) bool {
	a.Path = b.Path
	return a == b
}

// clear removes the mount at a path.
func (n *node) clear(volume string, e mount.Entry) error {
	if e.IsNFS() {
		return n.mounts.DetachNFS(e.Path, mount.KeepCalls)
	}
	return n.unmount(volume, e.Path)
}

// checkExclusiveShare is checkExclusive for a share.
func (n *node) checkExclusiveShare(p publication, staged mount.Entry) error {
	if !p.exclusive {
		return nil
	}
	others, err := n.mounts.Others(staged)
	if err != nil {
		return status.Errorf(codes.Internal, "mounting volume %s for a pod: %v", p.staged.volume, err)
	}
	if len(others) > 0 {
		return status.Errorf(codes.FailedPrecondition, "mounting volume %s for a pod: only one pod may use it, and it is already mounted at %s", p.staged.volume, others[0])
	}
	return nil
}

// unmountShare unmounts a share. While its server answers, the unmount waits until the server has all written data, and
// fails if a process still uses the mount. If the server does not answer, the mount is removed from the table at once.
// Written data that the server does not have yet is sent if the server returns before the calls time out. Other pods'
// calls continue.
func (n *node) unmountShare(volume, path string) error {
	silent := n.mounts.Answers(path)
	if silent == nil {
		return n.mounts.UnmountNFS(path)
	}
	n.log.WithError(silent).WithFields(logrus.Fields{"volume": volume, "path": path}).Warn("Detaching the mount of a share whose server does not answer")
	return n.mounts.DetachNFS(path, mount.KeepCalls)
}
