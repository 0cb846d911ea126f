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
	// deadTimeout is how long the kernel keeps requests of a device whose connection ended: then they fail.
	deadTimeout = 10 * time.Second
	// lookAgain is how often the kernel looks whether the connection of a request was replaced, to send it again. Of a request that takes
	// longer the kernel logs a line each time.
	lookAgain = 2 * time.Second
	// maxDiscardBytes and maxRequestBytes are the longest requests: a discard of many gigabytes would hold its range for as long as it takes.
	maxDiscardBytes = 64 << 20
	maxRequestBytes = 1 << 20
)

// Device is a configured device.
type Device struct {
	Index uint32
	// ID is shown in sysfs, and the kernel refuses changes by those who do not know it.
	ID string
}

// Link configures devices. It keeps its way to the kernel open: to open another one needs descriptors, and a change
// of the network namespace, for each command.
type Link struct {
	dial     func() (*genetlink.Conn, error)
	sysfs    string // the directory of block devices
	readFile func(path string) ([]byte, error)

	mu     sync.Mutex
	conn   *genetlink.Conn  // guarded by mu; nil: dial first. No answer to an earlier command is left in it.
	family genetlink.Family // guarded by mu; as conn knows it
}

// Open returns a Link, if the kernel has the module. The interface is seen in the machine's first network namespace alone, of which netNS is
// the file; "": the caller is in it.
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
		return nil, fmt.Errorf("the kernel's NBD client does not name the owners of its devices, which needs Linux 5.14; this is %s", release)
	}
	return l, nil
}

// namesOwners tells whether a kernel of this release keeps the backend identifier of a device (since 5.14). One of which the release cannot be
// read is taken for new: making a device finds out.
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
		wasOpen = false // the kernel did nothing: since conn was opened, the module was loaded again, and has another number
	}
}

// answerOf returns the error number with which the kernel answered a command. The answer has been read then, so conn has
// nothing left of it and serves the next command: another conn would need descriptors, of which a refusal may say that they
// are short. A failed system call has no such number, nor has an answer to something else.
func answerOf(err error) (unix.Errno, bool) {
	var op *netlink.OpError
	if !errors.As(err, &op) {
		return 0, false
	}
	no, is := op.Err.(unix.Errno) //nolint:errorlint // the error of a system call is an *os.SyscallError, which is no answer
	return no, is
}

// reach opens the way to the kernel's NBD client unless it is open.
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
		return fmt.Errorf("reach the kernel: %w", err)
	}
	family, err := conn.GetFamily(familyName)
	if err != nil {
		_ = conn.Close()
		return fmt.Errorf("the kernel has no NBD client (module nbd): %w", err)
	}
	l.conn, l.family = conn, family
	return nil
}

// hangUpLocked closes a way on which an answer may be left.
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

// Connect makes a device of a connected socket, on whose other end the export is served. The kernel keeps the socket itself; the descriptor
// stays the caller's. It has the logical block size blockBytes.
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
		return Device{}, fmt.Errorf("connect an NBD device: %w", err)
	}
	for _, m := range replies {
		ad, err := netlink.NewAttributeDecoder(m.Data)
		if err != nil {
			return Device{}, fmt.Errorf("connect an NBD device: %w", err)
		}
		for ad.Next() {
			if ad.Type() == attrIndex {
				d := Device{Index: ad.Uint32(), ID: id}
				return d, ad.Err()
			}
		}
	}
	return Device{}, errors.New("connect an NBD device: the kernel does not say which")
}

// Limit sets the longest requests, and how soon a request is sent again.
func (l *Link) Limit(d Device) error {
	var err error
	for file, value := range map[string]int64{
		"io_timeout": lookAgain.Milliseconds(), "discard_max_bytes": maxDiscardBytes, "max_sectors_kb": maxRequestBytes >> 10,
	} {
		err = errors.Join(err, os.WriteFile(filepath.Join(l.dir(d), "queue", file), []byte(strconv.FormatInt(value, 10)), 0))
	}
	return err
}

// reconfigure changes a device. The kernel refuses the change if the number belongs to a device with another ID. It does
// not refuse where the number belongs to a device without any ID, as those of nbd-client are: so sysfs is read first.
// Where sysfs cannot be read the kernel decides.
func (l *Link) reconfigure(d Device, what string, encode func(*netlink.AttributeEncoder)) error {
	if is, err := l.IsConfigured(d); err == nil && !is {
		return fmt.Errorf("%s of nbd%d: it is not the device %q: %w", what, d.Index, d.ID, unix.EINVAL)
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

// EndWithUsers says whether a device ends when its last user closes it.
func (l *Link) EndWithUsers(d Device, ends bool) error {
	var flags uint64
	if ends {
		flags = flagDisconnectOnClose
	}
	return l.reconfigure(d, "set the end", func(ae *netlink.AttributeEncoder) { ae.Uint64(attrClientFlags, flags) })
}

// Resize makes a device larger, for its users too.
func (l *Link) Resize(d Device, sizeBytes int64) error {
	return l.reconfigure(d, "change the size", func(ae *netlink.AttributeEncoder) { ae.Uint64(attrSizeBytes, uint64(sizeBytes)) })
}

// Reconnect gives a device another socket in place of one whose connection has ended. If it has not, as far as the kernel knows yet, nothing
// happens, which is no error.
func (l *Link) Reconnect(d Device, socket int) error {
	return l.reconfigure(d, "replace the connection", func(ae *netlink.AttributeEncoder) { ae.Nested(attrSockets, sockets(socket)) })
}

// Disconnect ends a device: what is under way and what comes later fails. Its number is free when its last user has let go of it. The caller
// must have shut its connection down: Disconnect waits for what the kernel is sending. The caller must not have the
// device end with its users meanwhile.
//
// The kernel's command to disconnect has a number only, and no ID: the device of another program may have the number
// by then. So the device is first told to stay when its last user goes, which the kernel refuses if the ID is another
// one. From then on the number is free only after a disconnection, and no program but this one disconnects the
// device. A device without an ID takes any ID, so sysfs must show the ID after that. Where sysfs cannot be read,
// nothing is disconnected, and the caller must try again.
func (l *Link) Disconnect(d Device) error {
	err := l.EndWithUsers(d, false)
	if errors.Is(err, unix.EINVAL) {
		return nil // it is gone, or another program's, or was disconnected before and is open still
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

// IsConfigured tells whether a device is there: connected, or still open. An error says that it is not known: the caller
// must not take the device for gone, for example because this process had no descriptor left to look.
func (l *Link) IsConfigured(d Device) (bool, error) {
	id, found, err := l.backend(filepath.Join(l.dir(d), "backend"))
	if err != nil {
		return false, fmt.Errorf("find out whether nbd%d is configured: %w", d.Index, err)
	}
	return found && id == d.ID, nil
}

// backend reads the ID in a device's file in sysfs. The file is there as long as a device with an ID is configured; one
// that goes while it is open fails with ENODEV.
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
		return 0, fmt.Errorf("find the number of nbd%d: %w", d.Index, err)
	}
	var major, minor uint32
	if _, err := fmt.Sscanf(string(b), "%d:%d", &major, &minor); err != nil {
		return 0, fmt.Errorf("find the number of nbd%d: %w", d.Index, err)
	}
	return unix.Mkdev(major, minor), nil
}

// Size returns the size of a device in bytes.
func (l *Link) Size(d Device) (int64, error) {
	b, err := os.ReadFile(filepath.Join(l.dir(d), "size"))
	if err != nil {
		return 0, fmt.Errorf("ask for the size of nbd%d: %w", d.Index, err)
	}
	sectors, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("ask for the size of nbd%d: %w", d.Index, err)
	}
	return sectors * 512, nil
}

// Configured lists the devices whose ID begins so. With an error, it lists those that could be read.
func (l *Link) Configured(prefix string) ([]Device, error) {
	disks, err := os.ReadDir(l.sysfs) // not filepath.Glob, which lists nothing where it has no descriptor left
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
