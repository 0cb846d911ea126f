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

// What keeps an export from being mounted.
var (
	// ErrNoNFSClient: the kernel cannot mount NFS, and has no module for it.
	ErrNoNFSClient = errors.New("this node's kernel has no NFS client (module nfsv4)")
	// ErrNoServer: no server takes connections.
	ErrNoServer = errors.New("the NFS server cannot be reached")
	// ErrStale: the server answers that it does not have what is mounted any more.
	ErrStale = errors.New("the server does not have it any more")
)

// NFSClient is the node's NFS client and what it needs of the node. NodeNFS satisfies it.
type NFSClient interface {
	// Connect opens a TCP connection to a server from the node's network, closes it, and returns the node's address on it.
	Connect(server netip.AddrPort, limit time.Duration) (netip.Addr, error)
	// Mount calls mount(2) for type nfs4. What the mount sends must go through the node's network, also after this process has ended. The error
	// keeps the errno.
	Mount(source, target string, flags uintptr, data string) error
	// Load loads the kernel's client. It must succeed where that is loaded or built in.
	Load() error
}

// WithNFS returns the System, which mounts NFS by c from now on.
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

// Listed returns what is mounted at a path, which is the zero Entry for nothing. It reads the mount table alone, for looking at the root of
// an NFS mount may wait for a server. The error is ErrStuck while the kernel still writes out what UnmountNFS took off that path.
func (s *System) Listed(path string) (Entry, error) {
	if s.stuck.holds(writingOut(path)) {
		return Entry{}, fmt.Errorf("%s goes on: %w", writingOut(path), ErrStuck)
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
	for _, e := range slices.Backward(table) { // the last one is on top
		if e.Path == path {
			return e, nil
		}
	}
	return Entry{}, nil
}

// Others lists where else the file system of an entry is mounted, or a directory of it.
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

// Answers asks the server of what is mounted at a path. The error is ErrStale where the server answers that it does not have that. Any other
// error, among them ErrStuck, tells nothing certain: the server may be on its way.
func (s *System) Answers(path string) error {
	_, err := bounded(&s.stuck, "asking the server of "+path, s.limits.look, func() (Statistics, error) { return s.files.Statfs(path) })
	if errors.Is(err, syscall.ESTALE) || errors.Is(err, syscall.ENOENT) {
		return fmt.Errorf("%w: %w", ErrStale, err)
	}
	return err
}

// MountNFS mounts an export at target, which is made if missing. The error is ErrNoNFSClient, ErrNoServer or ErrStuck where that is why. A mount
// that was ErrStuck may yet come about; it is seen in the mount table then.
func (s *System) MountNFS(e Export, target string, o NFSOptions) error {
	if err := os.MkdirAll(target, 0o750); err != nil {
		return fmt.Errorf("making mount point: %w", err)
	}
	_, err := bounded(&s.stuck, "mounting "+target, s.limits.mount, func() (struct{}, error) { return struct{}{}, s.mountNFS(e, target, o) })
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
	// Without nfs.ko the kernel does not know the type; without nfsv4.ko, none of the versions.
	if !errors.Is(err, syscall.ENODEV) && !errors.Is(err, syscall.EPROTONOSUPPORT) {
		return err
	}
	if loading := s.nfs.Load(); loading != nil {
		return fmt.Errorf("%w: %w: %w", ErrNoNFSClient, err, loading)
	}
	return attempt()
}

// tryNFS mounts with the first of the options' variants that kernel and server know.
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

// BindNFS makes what is mounted at source appear at target too, which is made if missing.
func (s *System) BindNFS(source Entry, target string, readOnly bool) error {
	if err := os.MkdirAll(target, 0o750); err != nil {
		return fmt.Errorf("making mount point: %w", err)
	}
	_, err := bounded(&s.stuck, "binding "+target, s.limits.look, func() (struct{}, error) { return struct{}{}, s.files.Bind(source.Path, target, readOnly) })
	if err != nil {
		return fmt.Errorf("binding %s to %s: %w", source.Path, target, err)
	}
	return nil
}

func writingOut(path string) string { return "writing out " + path }

// UnmountNFS unmounts what is mounted at a path, however often. The last mount of a file system takes until the server has what was written. The
// error is ErrStuck where that takes too long, and it goes on: the path is off the mount table then, and Listed answers ErrStuck until all is written.
func (s *System) UnmountNFS(path string) error {
	return s.offNFS(path, func() error {
		_, err := bounded(&s.stuck, writingOut(path), s.limits.unmount, func() (struct{}, error) { return struct{}{}, s.files.Umount(path, 0) })
		return err
	})
}

// Haste says what becomes of calls to a server that DetachNFS leaves.
type Haste int

const (
	// Patient calls go on: what was written and is not yet sent arrives, if the server returns in time.
	Patient Haste = iota
	// Hasty ends them with errors, for all that use the file system.
	Hasty
)

// DetachNFS takes off what is mounted at a path, however often, without waiting for a server.
func (s *System) DetachNFS(path string, h Haste) error {
	flags := unix.MNT_DETACH
	if h == Hasty {
		flags |= unix.MNT_FORCE
	}
	return s.offNFS(path, func() error {
		_, err := bounded(&s.stuck, "detaching "+path, s.limits.detach, func() (struct{}, error) { return struct{}{}, s.files.Umount(path, flags) })
		if errors.Is(err, ErrStuck) {
			return nil // the table says whether it is off
		}
		return err
	})
}

// offNFS calls off until nothing is mounted at a path.
func (s *System) offNFS(path string, off func() error) error {
	for range maxStacked {
		e, err := s.Listed(path)
		if err != nil || e == (Entry{}) {
			return err
		}
		if err := off(); err != nil {
			return fmt.Errorf("unmounting %s: %w", path, err)
		}
	}
	return fmt.Errorf("unmounting %s: still mounted after %d times", path, maxStacked)
}
