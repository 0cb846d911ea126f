package fuse

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// lowestFD is the lowest number of a descriptor of a FUSE connection. A process that is killed closes its files from
// the highest number to the lowest. So the connection is closed before any file whose close would wait for answers of
// the connection, such as a loop device.
const lowestFD = 4096

// enoughFDs is how many descriptors a process with FUSE connections may have: the numbers of the connections start at
// lowestFD.
const enoughFDs = 4 * lowestFD

// allowFDs ensures that descriptors may have such numbers. Few systems allow a process so many from the start. A
// process with CAP_SYS_RESOURCE, which mounting requires anyway, can raise its own limit.
var allowFDs = sync.OnceValue(func() error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("read the limit of open files: %w", err)
	}
	if limit.Cur >= enoughFDs {
		return nil
	}
	raised := unix.Rlimit{Cur: enoughFDs, Max: max(enoughFDs, limit.Max)}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &raised); err != nil {
		return fmt.Errorf("raise the limit of open files to %d, with a hard limit of %d: %w", enoughFDs, limit.Max, err)
	}
	return nil
})

// Mount is a file system whose mount has no path. So it needs no directory, no process sees it, and nothing of it
// remains after its file and its connection are closed.
//
//	mount ── root directory ── volume.img   held open by: the process that opened it, later only the loop device
type Mount struct {
	conn, mount int
}

// NewMount creates a file system. Its connection must be served before any of its files can be opened.
func NewMount() (*Mount, error) {
	low, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/fuse: %w", err)
	}
	conn, err := Dup(low)
	_ = unix.Close(low)
	if err != nil {
		return nil, err
	}
	mount, err := detachedMount(conn)
	if err != nil {
		_ = unix.Close(conn)
		return nil, err
	}
	return &Mount{conn: conn, mount: mount}, nil
}

// Conn is the descriptor of the connection. The Mount still owns it.
func (m *Mount) Conn() int { return m.conn }

// Open opens the file for direct I/O. The connection must be served.
func (m *Mount) Open() (file int, err error) {
	// Not os.OpenFile: its poller would query the file system from a thread that may be the last one free to answer.
	file, err = unix.Openat(m.mount, imageName, unix.O_RDWR|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", imageName, err)
	}
	return file, nil
}

// Close closes the mount and the descriptor of the connection. The mount then lives as long as one of its files is
// open.
func (m *Mount) Close() {
	_ = unix.Close(m.mount)
	_ = unix.Close(m.conn)
}

// Dup duplicates the descriptor of a connection, at a number that is closed early (see lowestFD).
func Dup(conn int) (int, error) {
	if err := allowFDs(); err != nil {
		return -1, err
	}
	fd, err := unix.FcntlInt(uintptr(conn), unix.F_DUPFD_CLOEXEC, lowestFD)
	if err != nil {
		return -1, fmt.Errorf("duplicate a FUSE descriptor: %w", err)
	}
	return fd, nil
}

// detachedMount creates a FUSE mount that is served through conn and attached nowhere, and returns its descriptor.
func detachedMount(conn int) (int, error) {
	return newMount("fuse", [][2]string{
		{"source", "longhorn"},
		{"fd", fmt.Sprint(conn)},
		{"rootmode", fmt.Sprintf("%o", unix.S_IFDIR)},
		{"user_id", fmt.Sprint(os.Geteuid())},
		{"group_id", fmt.Sprint(os.Getegid())},
		{"max_read", fmt.Sprint(MaxWrite)},
	})
}

func newMount(kind string, options [][2]string) (int, error) {
	fs, err := unix.Fsopen(kind, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("prepare a %s mount: %w", kind, err)
	}
	defer unix.Close(fs)
	for _, o := range options {
		if err := unix.FsconfigSetString(fs, o[0], o[1]); err != nil {
			return -1, fmt.Errorf("set option %s of a %s mount: %w", o[0], kind, err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, fmt.Errorf("create a %s mount: %w", kind, err)
	}
	mount, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return -1, fmt.Errorf("mount %s: %w", kind, err)
	}
	return mount, nil
}

// Number returns the kernel's number of the connection to which a file belongs, without a request to its server.
func Number(file int) (uint32, error) {
	var st unix.Statx_t
	if err := unix.Statx(file, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE, &st); err != nil {
		return 0, fmt.Errorf("examine the file: %w", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Dev_major != 0 {
		return 0, errors.New("the file is not on a FUSE file system")
	}
	return st.Dev_minor, nil
}

// Abort makes the kernel end a connection: current and later requests fail, and none reaches the server. The mount
// stays until its last user closes it. Abort succeeds if the connection has already ended. It mounts the control file
// system, without a path, only for this purpose.
func Abort(number uint32) error {
	control, err := newMount("fusectl", nil)
	if err != nil {
		return fmt.Errorf("abort a FUSE connection: %w", err)
	}
	defer unix.Close(control)
	file, err := unix.Openat(control, fmt.Sprintf("%d/abort", number), unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("abort FUSE connection %d: %w", number, err)
	}
	defer unix.Close(file)
	if _, err := unix.Write(file, []byte("1")); err != nil {
		return fmt.Errorf("abort FUSE connection %d: %w", number, err)
	}
	return nil
}

// Resend makes the kernel send the requests again that an earlier server of the connection had read and not answered.
// It must be called once, after that server has ended and before the first request is read. A request that is read
// before the call would be served twice.
func Resend(conn int) error {
	p := make([]byte, outHeaderBytes)
	le.PutUint32(p, outHeaderBytes)
	le.PutUint32(p[4:], notifyResend)
	if _, err := unix.Write(conn, p); err != nil {
		return fmt.Errorf("ask the kernel to resend requests: %w", err)
	}
	return nil
}

// CanResend reports whether this kernel can send requests again (Linux 6.9). It reads the kernel's offer for a mount
// that it creates only for this purpose.
func CanResend() (bool, error) {
	m, err := NewMount()
	if err != nil {
		return false, err
	}
	defer m.Close()
	b := make([]byte, 2*pageBytes)
	// The kernel queues INIT while it creates the mount.
	n, err := unix.Read(m.conn, b)
	if err != nil {
		return false, fmt.Errorf("read the features of the kernel's FUSE: %w", err)
	}
	h, rest, err := parseHeader(b[:n])
	if err == nil && h.opcode != opInit {
		err = errMalformed
	}
	if err != nil {
		return false, fmt.Errorf("read the features of the kernel's FUSE: %w", err)
	}
	o, err := parseInit(rest)
	return o.flags&initHasResend != 0, err
}
