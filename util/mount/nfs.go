package mount

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Reasons why an export cannot be mounted or used.
var (
	// ErrNoNFSClient: the kernel cannot mount NFS, and has no module for it.
	ErrNoNFSClient = errors.New("this node's kernel has no NFS client (module nfsv4)")
	// ErrNoServer: no server accepts connections.
	ErrNoServer = errors.New("the NFS server cannot be reached")
	// ErrStale: the server answers that it no longer has the mounted file system.
	ErrStale = errors.New("the NFS server no longer has the mounted file system")
)

// NFSClient is the node's NFS client, with its needs on the node. NodeNFS implements it.
type NFSClient interface {
	// Connect opens a TCP connection to a server from the node's network, closes it, and returns the node's address on
	// it.
	Connect(server netip.AddrPort, limit time.Duration) (netip.Addr, error)
	// Mount calls mount(2) for type nfs4. The mount's packets must go through the node's network, even after this
	// process has exited. The error keeps the errno.
	Mount(source, target string, flags uintptr, data string) error
	// Load loads the kernel's client. It must succeed if the client is loaded or built in.
	Load() error
}

// WithNFS makes the System mount NFS with c from now on, and returns it.
func (s *System) WithNFS(c NFSClient) *System {
	s.nfs = c
	return s
}

// Export is a directory of an NFS server.
type Export struct {
	Server netip.Addr
	// Path on the server, absolute.
	Path string
}

// Source is the export as the mount table shows it.
func (e Export) Source() string {
	if e.Server.Is4() {
		return e.Server.String() + ":" + e.Path
	}
	return "[" + e.Server.String() + "]:" + e.Path
}

// Listed returns the mount at a path, or the zero Entry if there is none. It reads only the mount table, because access
// to the root of an NFS mount may wait for a server. The error is ErrStuck while the kernel still writes out data of a
// mount that UnmountNFS removed from that path.
func (s *System) Listed(path string) (Entry, error) {
	if s.stuck.holds(writingOut(path)) {
		return Entry{}, fmt.Errorf("%s continues: %w", writingOut(path), ErrStuck)
	}
	parent, err := filepath.EvalSymlinks(filepath.Dir(path))
	switch {
	case errors.Is(err, os.ErrNotExist):
		return Entry{}, nil
	case err != nil:
		return Entry{}, fmt.Errorf("looking for %s in the mount table: %w", path, err)
	}
	path = filepath.Join(parent, filepath.Base(path))
	table, err := s.files.Table()
	if err != nil {
		return Entry{}, fmt.Errorf("reading the mount table: %w", err)
	}
	for _, e := range slices.Backward(table) { // the last mount is on top
		if e.Path == path {
			return e, nil
		}
	}
	return Entry{}, nil
}

// Others lists the other places where the file system of an entry, or a directory of it, is mounted.
func (s *System) Others(e Entry) ([]string, error) {
	table, err := s.files.Table()
	if err != nil {
		return nil, fmt.Errorf("reading the mount table: %w", err)
	}
	var paths []string
	for _, other := range table {
		if other.Device == e.Device && other.Path != e.Path {
			paths = append(paths, other.Path)
		}
	}
	return paths, nil
}

// Answers sends a request to the server of the mount at a path. The error is ErrStale if the server answers that it
// does not have the file system. Any other error, including ErrStuck, proves nothing: the server may be moving.
func (s *System) Answers(path string) error {
	_, err := runBounded(&s.stuck, "asking the server of "+path, s.limits.look, func() (Statistics, error) { return s.files.Statfs(path) })
	if errors.Is(err, syscall.ESTALE) || errors.Is(err, syscall.ENOENT) {
		return fmt.Errorf("%w: %w", ErrStale, err)
	}
	return err
}

// MountNFS mounts an export at target, and creates target if it is missing. The error is ErrNoNFSClient, ErrNoServer or
// ErrStuck if that is the reason. A mount with the error ErrStuck may still succeed; the mount table shows it then.
func (s *System) MountNFS(e Export, target string, o NFSOptions) error {
	if err := os.MkdirAll(target, 0o750); err != nil {
		return fmt.Errorf("creating the mount point: %w", err)
	}
	_, err := runBounded(&s.stuck, "mounting "+target, s.limits.mount, func() (struct{}, error) { return struct{}{}, s.mountNFS(e, target, o) })
	if err != nil {
		return fmt.Errorf("mounting %s on %s: %w", e.Source(), target, err)
	}
	return nil
}

func (s *System) mountNFS(e Export, target string, o NFSOptions) error {
	local, err := s.nfs.Connect(netip.AddrPortFrom(e.Server, o.port()), s.limits.connect)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoServer, err)
	}
	attempt := func() error { return s.tryNFS(e, target, o, local) }
	err = attempt()
	// Without nfs.ko the kernel does not know the type. Without nfsv4.ko it knows none of the versions.
	if !errors.Is(err, syscall.ENODEV) && !errors.Is(err, syscall.EPROTONOSUPPORT) {
		return err
	}
	if loading := s.nfs.Load(); loading != nil {
		return fmt.Errorf("%w: %w: %w", ErrNoNFSClient, err, loading)
	}
	return attempt()
}

// tryNFS mounts with the first variant of the options that kernel and server support.
func (s *System) tryNFS(e Export, target string, o NFSOptions, local netip.Addr) error {
	var err error
	for _, variant := range o.variants() {
		data := append(slices.Clone(variant), "addr="+e.Server.String(), "clientaddr="+local.String())
		err = s.nfs.Mount(e.Source(), target, o.flags, strings.Join(data, ","))
		switch {
		case errors.Is(err, syscall.EINVAL), errors.Is(err, syscall.EPROTONOSUPPORT):
			err = fmt.Errorf("with options %s: %w", strings.Join(variant, ","), err)
			continue
		}
		return err
	}
	return err
}

// BindNFS makes the mount at source appear at target too, and creates target if it is missing.
func (s *System) BindNFS(source Entry, target string, readOnly bool) error {
	if err := os.MkdirAll(target, 0o750); err != nil {
		return fmt.Errorf("creating the mount point: %w", err)
	}
	_, err := runBounded(&s.stuck, "bind-mounting "+target, s.limits.look, func() (struct{}, error) { return struct{}{}, s.files.Bind(source.Path, target, readOnly) })
	if err != nil {
		return fmt.Errorf("bind-mounting %s at %s: %w", source.Path, target, err)
	}
	return nil
}

func writingOut(path string) string { return "writing back the data of " + path }

// UnmountNFS removes all mounts at a path. The last mount of a file system waits until the server has all written data.
// If that takes too long, the error is ErrStuck, and the unmount continues. In that case the path is no longer in the
// mount table, and Listed returns ErrStuck until all data is written.
func (s *System) UnmountNFS(path string) error {
	return s.unmountAllNFS(path, func() error {
		_, err := runBounded(&s.stuck, writingOut(path), s.limits.unmount, func() (struct{}, error) { return struct{}{}, s.files.Umount(path, 0) })
		return err
	})
}

// OpenCalls determines the effect of DetachNFS on open calls to the server.
type OpenCalls int

const (
	// KeepCalls calls continue: written data that is not yet sent arrives if the server returns in time.
	KeepCalls OpenCalls = iota
	// FailCalls makes them fail, for all users of the file system.
	FailCalls
)

// DetachNFS removes all mounts at a path, without waiting for a server.
func (s *System) DetachNFS(path string, h OpenCalls) error {
	flags := unix.MNT_DETACH
	if h == FailCalls {
		flags |= unix.MNT_FORCE
	}
	return s.unmountAllNFS(path, func() error {
		_, err := runBounded(&s.stuck, "detaching "+path, s.limits.detach, func() (struct{}, error) { return struct{}{}, s.files.Umount(path, flags) })
		if errors.Is(err, ErrStuck) {
			return nil // the table shows whether the mount is gone
		}
		return err
	})
}

// unmountAllNFS calls off until nothing is mounted at a path.
func (s *System) unmountAllNFS(path string, off func() error) error {
	for range maxStacked {
		e, err := s.Listed(path)
		if err != nil || e == (Entry{}) {
			return err
		}
		if err := off(); err != nil {
			return fmt.Errorf("unmounting %s: %w", path, err)
		}
	}
	return fmt.Errorf("unmounting %s: still mounted after %d attempts", path, maxStacked)
}
