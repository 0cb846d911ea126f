package holder

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/dataplane/device"
)

// The operations of messages. A reply carries the id of its request. A request without an id gets no reply.
const (
	opReply        = "reply"
	opHello        = "hello"   // asks which holder this is
	opList         = "list"    // in parts; Volume names the last volume of the previous part
	opAttach       = "attach"  // with two descriptors: the connection and the file
	opAdopt        = "adopt"   // the reply has a descriptor
	opAbandon      = "abandon" // Keeper.Leave
	opDetach       = "detach"
	opAbort        = "abort"
	opAttachSocket = "attachSocket" // with a descriptor: the kernel's end; known if the reply to hello has NBD
	opAdoptSocket  = "adoptSocket"  // the same
	opResize       = "resize"       // to SizeBytes; known if the reply to hello has Resizes
	opCancel       = "cancel"       // without an id of its own: the context of the request with this id is done
	opReady        = "ready"        // from the serving process, without an id: it serves
	opLeave        = "leave"        // to the serving process, without an id: leave the devices to a successor and exit
	opStatus       = "status"
	opReplace      = "replace" // with a descriptor: the executable
)

// message is the content of each packet on the sockets: one JSON object.
type message struct {
	ID     uint64        `json:"id,omitempty"`
	Op     string        `json:"op"`
	Volume string        `json:"volume,omitempty"`
	Owner  device.Owner  `json:"owner,omitzero"`
	Spec   *device.Spec  `json:"spec,omitempty"`
	Held   []device.Held `json:"held,omitempty"`
	More   bool          `json:"more,omitempty"`

	SizeBytes int64 `json:"sizeBytes,omitempty"`

	Successions bool    `json:"successions,omitempty"`
	Resizes     bool    `json:"resizes,omitempty"`
	NBD         bool    `json:"nbd,omitempty"`
	NoNBD       string  `json:"noNBD,omitempty"` // the reason
	Version     string  `json:"version,omitempty"`
	SHA256      string  `json:"sha256,omitempty"`
	Status      *Status `json:"status,omitempty"`

	Error string `json:"error,omitempty"`
	Kind  string `json:"kind,omitempty"` // of Error, a key of kinds
}

// listPart is the number of devices in one packet, packetBytes the longest packet, and versionBytes the longest name of
// a version.
const (
	listPart     = 64
	packetBytes  = 128 << 10
	versionBytes = 1 << 10
)

// kinds are the errors that the other process must recognize.
var kinds = map[string]error{
	"inUse": device.ErrInUse, "fenced": device.ErrFenced, "notHeld": device.ErrNotHeld, "served": device.ErrServed, "ended": device.ErrEnded, "noResize": device.ErrNoResize, "noNBD": device.ErrNoNBD, "busy": ErrBusy,
}

// setError puts an error into a reply.
func (m *message) setError(err error) {
	if err == nil {
		return
	}
	m.Error = err.Error()
	for kind, known := range kinds {
		if errors.Is(err, known) {
			m.Kind = kind
		}
	}
}

// err returns the error of a reply.
func (m *message) err() error {
	if m.Error == "" {
		return nil
	}
	return &remoteError{text: m.Error, kind: kinds[m.Kind]}
}

// remoteError is an error of the other process: its text, and its kind.
type remoteError struct {
	text string
	kind error
}

func (e *remoteError) Error() string { return e.text }
func (e *remoteError) Unwrap() error { return e.kind }

// packets is a socket for packets with descriptors.
type packets struct {
	conn *net.UnixConn
	mu   sync.Mutex // held while one packet is sent
}

// fromFD takes over the descriptor of a socket.
func fromFD(fd int, name string) (*packets, error) {
	file := os.NewFile(uintptr(fd), name)
	defer file.Close()
	c, err := net.FileConn(file)
	if err != nil {
		return nil, fmt.Errorf("use %s: %w", name, err)
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		_ = c.Close()
		return nil, fmt.Errorf("use %s: it is a socket of another kind", name)
	}
	return &packets{conn: u}, nil
}

// send sends a message. The descriptors stay the caller's.
func (p *packets) send(m message, fds ...int) error {
	b, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode %s: %w", m.Op, err)
	}
	if len(b) > packetBytes {
		return fmt.Errorf("send %s: %w", m.Op, unix.EMSGSIZE)
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, _, err := p.conn.WriteMsgUnix(b, rights, nil); err != nil {
		return fmt.Errorf("send %s: %w", m.Op, err)
	}
	return nil
}

// receive waits for a message. The caller owns the descriptors.
func (p *packets) receive(room []byte) (m message, fds []int, err error) {
	rights := make([]byte, unix.CmsgSpace(4*4))
	n, r, flags, _, err := p.conn.ReadMsgUnix(room, rights)
	if err != nil {
		return message{}, nil, fmt.Errorf("receive a message: %w", err)
	}
	if parts, err := unix.ParseSocketControlMessage(rights[:r]); err == nil {
		for i := range parts {
			got, _ := unix.ParseUnixRights(&parts[i])
			fds = append(fds, got...)
		}
	}
	if flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		err = unix.EMSGSIZE
	} else {
		err = json.Unmarshal(room[:n], &m)
	}
	if err == nil && len(m.Version) > versionBytes { // every status contains it, and a status must fit
		err = unix.EMSGSIZE
	}
	if err != nil {
		closeAll(fds)
		return message{}, nil, fmt.Errorf("receive a message: %w", err)
	}
	return m, fds, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}
