package kernel

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mdlayher/genetlink"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
)

// Numbers of the kernel's interface (linux/nbd-netlink.h).
const (
	familyName = "nbd"

	cmdConnect     = 1
	cmdDisconnect  = 2
	cmdReconfigure = 3

	attrIndex       = 1
	attrSizeBytes   = 2
	attrBlockBytes  = 3
	attrTimeout     = 4
	attrServerFlags = 5
	attrClientFlags = 6
	attrSockets     = 7
	attrDeadTimeout = 8
	attrBackend     = 10

	attrSocketItem = 1
	attrSocketFD   = 1

	flagDisconnectOnClose = 1 << 1
)

const (
	// deadTimeout is how long the kernel keeps requests of a device after its connection has ended. Then they fail.
	deadTimeout = 10 * time.Second
	// lookAgain is how often the kernel checks whether the connection of a request was replaced, to send the request
	// again. For a request that takes longer, the kernel logs a line at each check.
	lookAgain = 2 * time.Second
	// maxDiscardBytes and maxRequestBytes are the longest requests. A discard of many gigabytes would hold its range
	// for as long as it takes.
	maxDiscardBytes = 64 << 20
	maxRequestBytes = 1 << 20
)

// Device is a configured device.
type Device struct {
	Index uint32
	// ID is visible in sysfs. The kernel refuses changes by callers that do not know it.
	ID string
}

// Link configures devices. It keeps its connection to the kernel open. To open another connection for each command
// would need descriptors, and a change of the network namespace.
type Link struct {
	dial     func() (*genetlink.Conn, error)
	sysfs    string // the directory of block devices
	readFile func(path string) ([]byte, error)

	mu     sync.Mutex
	conn   *genetlink.Conn  // guarded by mu; nil: dial first. It contains no answer to an earlier command.
	family genetlink.Family // guarded by mu; valid for conn
}

// Open returns a Link, if the kernel has the module. The interface exists only in the machine's first network
// namespace. netNS is the file of that namespace; with "" the caller is in it.
func Open(netNS string) (*Link, error) {
	l := &Link{sysfs: "/sys/block", readFile: os.ReadFile, dial: func() (*genetlink.Conn, error) {
		if netNS == "" {
			return genetlink.Dial(nil)
		}
		f, err := os.Open(netNS)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return genetlink.Dial(&netlink.Config{NetNS: int(f.Fd())})
	}}
	if err := l.reach(); err != nil {
		return nil, err
	}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return nil, fmt.Errorf("find the kernel's release: %w", err)
	}
	if release := unix.ByteSliceToString(u.Release[:]); !namesOwners(release) {
		return nil, fmt.Errorf("the kernel's NBD client does not show the owners of its devices; this requires Linux 5.14 or later, and the release is %s", release)
	}
	return l, nil
}

// namesOwners reports whether a kernel of this release keeps the backend identifier of a device (since 5.14). If the
// release cannot be parsed, the kernel counts as new enough; the creation of a device shows the truth.
func namesOwners(release string) bool {
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		return true
	}
	return major > 5 || major == 5 && minor >= 14
}

// do sends one command.
func (l *Link) do(command uint8, flags netlink.HeaderFlags, encode func(*netlink.AttributeEncoder)) ([]genetlink.Message, error) {
	ae := netlink.NewAttributeEncoder()
	encode(ae)
	data, err := ae.Encode()
	if err != nil {
		return nil, fmt.Errorf("encode the command: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	wasOpen := l.conn != nil
	for {
		if err := l.reachLocked(); err != nil {
			return nil, err
		}
		m := genetlink.Message{Header: genetlink.Header{Command: command, Version: l.family.Version}, Data: data}
		replies, err := l.conn.Execute(m, l.family.ID, netlink.Request|flags)
		if err == nil {
			return replies, nil
		}
		answer, isAnswer := answerOf(err)
		if !isAnswer || answer == unix.ENOENT {
			l.hangUpLocked()
		}
		if !wasOpen || answer != unix.ENOENT {
			return nil, err
		}
		// The kernel did nothing: since conn was opened, the module was loaded again and has another number.
		wasOpen = false
	}
}

// answerOf returns the error number with which the kernel answered a command. Such an answer was read completely, so
// conn is empty and serves the next command. Another conn would need descriptors, and the refusal may say that they are
// short. A failed system call has no such number, and neither has an answer to something else.
func answerOf(err error) (unix.Errno, bool) {
	var op *netlink.OpError
	if !errors.As(err, &op) {
		return 0, false
	}
	no, is := op.Err.(unix.Errno) //nolint:errorlint // a failed system call has an *os.SyscallError, which is no answer
	return no, is
}

// reach opens the connection to the kernel's NBD client unless it is open.
func (l *Link) reach() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reachLocked()
}

func (l *Link) reachLocked() error {
	if l.conn != nil {
		return nil
	}
	conn, err := l.dial()
	if err != nil {
		return fmt.Errorf("connect to the kernel's netlink interface: %w", err)
	}
	family, err := conn.GetFamily(familyName)
	if err != nil {
		_ = conn.Close()
		return fmt.Errorf("the kernel has no NBD client (module nbd): %w", err)
	}
	l.conn, l.family = conn, family
	return nil
}

// hangUpLocked closes a connection that may still contain an answer. The caller holds mu.
func (l *Link) hangUpLocked() {
	_ = l.conn.Close()
	l.conn = nil
}

func sockets(fd int) func(*netlink.AttributeEncoder) error {
	return func(list *netlink.AttributeEncoder) error {
		list.Nested(attrSocketItem, func(item *netlink.AttributeEncoder) error {
			item.Uint32(attrSocketFD, uint32(fd))
			return nil
		})
		return nil
	}
}

// Connect creates a device from a connected socket. The export is served on the other end of the socket. The kernel
// keeps the socket itself; the descriptor stays the caller's. The device has the logical block size blockBytes.
func (l *Link) Connect(id string, sizeBytes, blockBytes int64, socket int) (Device, error) {
	replies, err := l.do(cmdConnect, 0, func(ae *netlink.AttributeEncoder) {
		ae.Uint64(attrSizeBytes, uint64(sizeBytes))
		ae.Uint64(attrBlockBytes, uint64(blockBytes))
		ae.Uint64(attrTimeout, 0)
		ae.Uint64(attrDeadTimeout, uint64(deadTimeout/time.Second))
		ae.Uint64(attrServerFlags, uint64(nbd.DeviceFlags))
		ae.String(attrBackend, id)
		ae.Nested(attrSockets, sockets(socket))
	})
	if err != nil {
		return Device{}, fmt.Errorf("create an NBD device: %w", err)
	}
	for _, m := range replies {
		ad, err := netlink.NewAttributeDecoder(m.Data)
		if err != nil {
			return Device{}, fmt.Errorf("create an NBD device: %w", err)
		}
		for ad.Next() {
			if ad.Type() == attrIndex {
				d := Device{Index: ad.Uint32(), ID: id}
				return d, ad.Err()
			}
		}
	}
	return Device{}, errors.New("create an NBD device: the kernel did not return the device's number")
}

// Limit sets the longest requests, and the time after which a request is sent again.
func (l *Link) Limit(d Device) error {
	var err error
	for file, value := range map[string]int64{
		"io_timeout": lookAgain.Milliseconds(), "discard_max_bytes": maxDiscardBytes, "max_sectors_kb": maxRequestBytes >> 10,
	} {
		err = errors.Join(err, os.WriteFile(filepath.Join(l.dir(d), "queue", file), []byte(strconv.FormatInt(value, 10)), 0))
	}
	return err
}

// reconfigure changes a device. The kernel refuses the change if the number belongs to a device with another ID. It
// does not refuse the change if the number belongs to a device without any ID, like the devices of nbd-client. So
// reconfigure reads sysfs first. If sysfs cannot be read, the kernel decides.
func (l *Link) reconfigure(d Device, what string, encode func(*netlink.AttributeEncoder)) error {
	if is, err := l.IsConfigured(d); err == nil && !is {
		return fmt.Errorf("%s of nbd%d: it is no longer the device %q: %w", what, d.Index, d.ID, unix.EINVAL)
	}
	_, err := l.do(cmdReconfigure, netlink.Acknowledge, func(ae *netlink.AttributeEncoder) {
		ae.Uint32(attrIndex, d.Index)
		ae.String(attrBackend, d.ID)
		encode(ae)
	})
	if err != nil {
		return fmt.Errorf("%s of nbd%d: %w", what, d.Index, err)
	}
	return nil
}

// EndWithUsers sets whether the kernel disconnects a device when its last user closes it.
func (l *Link) EndWithUsers(d Device, ends bool) error {
	var flags uint64
	if ends {
		flags = flagDisconnectOnClose
	}
	return l.reconfigure(d, "set what happens after the last user", func(ae *netlink.AttributeEncoder) { ae.Uint64(attrClientFlags, flags) })
}

// Resize makes a device larger, also for its users.
func (l *Link) Resize(d Device, sizeBytes int64) error {
	return l.reconfigure(d, "change the size", func(ae *netlink.AttributeEncoder) { ae.Uint64(attrSizeBytes, uint64(sizeBytes)) })
}

// Reconnect gives a device another socket to replace a connection that has ended. If the kernel has not seen the end
// yet, nothing happens, and this is no error.
func (l *Link) Reconnect(d Device, socket int) error {
	return l.reconfigure(d, "replace the connection", func(ae *netlink.AttributeEncoder) { ae.Nested(attrSockets, sockets(socket)) })
}

// Disconnect disconnects a device: requests that are under way and later requests fail. The number of the device is
// free when its last user has closed it. Before the call, the caller must have shut the connection down, because
// Disconnect waits for the data that the kernel is sending. During the call, the caller must not call EndWithUsers for
// the device.
//
// The kernel's command to disconnect contains only a number, and no ID. By then the device of another program may have
// the number. So Disconnect first tells the kernel to keep the device after its last user has closed it. The kernel
// refuses this if the device has another ID. From then on the number becomes free only after a disconnection, and no
// other program disconnects the device. A device without an ID accepts any ID, so after that sysfs must show the ID. If
// sysfs cannot be read, nothing is disconnected, and the caller must try again.
func (l *Link) Disconnect(d Device) error {
	err := l.EndWithUsers(d, false)
	if errors.Is(err, unix.EINVAL) {
		// The device is gone, or belongs to another program. Or it was disconnected before, and is still open.
		return nil
	}
	is, unknown := l.IsConfigured(d)
	switch {
	case unknown == nil && !is:
		return nil
	case err == nil && unknown == nil:
		_, err = l.do(cmdDisconnect, netlink.Acknowledge, func(ae *netlink.AttributeEncoder) { ae.Uint32(attrIndex, d.Index) })
		if is, e := l.IsConfigured(d); e == nil && !is {
			return nil
		}
	}
	if err = errors.Join(err, unknown); err != nil {
		return fmt.Errorf("disconnect nbd%d: %w", d.Index, err)
	}
	return nil
}

func (l *Link) dir(d Device) string { return filepath.Join(l.sysfs, fmt.Sprintf("nbd%d", d.Index)) }

// IsConfigured reports whether a device exists: connected, or still open. An error says that this is unknown. Then the
// caller must not conclude that the device is gone. For example, this process may have had no free descriptor for the
// check.
func (l *Link) IsConfigured(d Device) (bool, error) {
	id, found, err := l.backend(filepath.Join(l.dir(d), "backend"))
	if err != nil {
		return false, fmt.Errorf("check whether nbd%d is configured: %w", d.Index, err)
	}
	return found && id == d.ID, nil
}

// backend reads the ID in a device's file in sysfs. The file exists as long as a device with an ID is configured. If it
// disappears while it is open, the read fails with ENODEV.
func (l *Link) backend(file string) (id string, found bool, err error) {
	b, err := l.readFile(file)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENODEV):
		return "", false, nil
	case err != nil:
		return "", false, err
	}
	return strings.TrimSuffix(string(b), "\n"), true, nil
}

// Number returns the major and minor number of a device.
func (l *Link) Number(d Device) (uint64, error) {
	b, err := os.ReadFile(filepath.Join(l.dir(d), "dev"))
	if err != nil {
		return 0, fmt.Errorf("read the device number of nbd%d: %w", d.Index, err)
	}
	var major, minor uint32
	if _, err := fmt.Sscanf(string(b), "%d:%d", &major, &minor); err != nil {
		return 0, fmt.Errorf("read the device number of nbd%d: %w", d.Index, err)
	}
	return unix.Mkdev(major, minor), nil
}

// Size returns the size of a device in bytes.
func (l *Link) Size(d Device) (int64, error) {
	b, err := os.ReadFile(filepath.Join(l.dir(d), "size"))
	if err != nil {
		return 0, fmt.Errorf("read the size of nbd%d: %w", d.Index, err)
	}
	sectors, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read the size of nbd%d: %w", d.Index, err)
	}
	return sectors * 512, nil
}

// Configured lists the devices with an ID that starts with prefix. If it returns an error, it also returns the devices
// that it could read.
func (l *Link) Configured(prefix string) ([]Device, error) {
	disks, err := os.ReadDir(l.sysfs) // not filepath.Glob, which lists nothing if no descriptor is free
	if err != nil {
		return nil, fmt.Errorf("list NBD devices: %w", err)
	}
	var found []Device
	var unread error
	for _, disk := range disks {
		number, isNBD := strings.CutPrefix(disk.Name(), "nbd")
		index, err := strconv.ParseUint(number, 10, 32)
		if !isNBD || err != nil {
			continue
		}
		id, is, err := l.backend(filepath.Join(l.sysfs, disk.Name(), "backend"))
		if err != nil {
			unread = errors.Join(unread, fmt.Errorf("list NBD devices: %w", err))
		}
		if is && strings.HasPrefix(id, prefix) {
			found = append(found, Device{Index: uint32(index), ID: id})
		}
	}
	return found, unread
}
