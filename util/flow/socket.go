package flow

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Messages and states from <linux/sock_diag.h> and <linux/tcp_states.h>.
const (
	sockDiagByFamily = 20
	sockDestroy      = 21

	tcpEstablished, tcpSynSent = 1, 2

	// The lengths of struct inet_diag_req_v2 and struct inet_diag_msg. The socket is at another offset in the first
	// than in the second.
	diagRequest = 56
	diagAnswer  = 72
	// diagSocket is the length of struct inet_diag_sockid: ports, addresses, a link and a cookie.
	diagSocket       = 48
	socketInRequest  = 8
	socketInAnswer   = 4
	cookieInSocketID = 40
	// In struct inet_diag_msg: the state, and when the socket's timer expires, in milliseconds. While a connection is
	// being opened, this is the timer of its first packet.
	stateInAnswer   = 1
	expiresInAnswer = socketInAnswer + diagSocket
)

// Socket is the state of a connection's socket.
type Socket struct {
	Flow
	// Opening: the peer has not answered yet. The kernel sends the first packet again after Retry.
	Opening bool
	Retry   time.Duration
}

// To lists the connections of this network to an address, including those that are being opened. If the peer is gone,
// opening takes minutes, because the kernel sends each packet of a connection to the same peer.
func To(remote netip.AddrPort) ([]Socket, error) {
	wanted := Flow{Remote: remote}
	data := wanted.diag()
	binary.NativeEndian.PutUint32(data[4:], 1<<tcpEstablished|1<<tcpSynSent)
	replies, err := request(unix.NETLINK_INET_DIAG, netlink.Message{
		Header: netlink.Header{Type: sockDiagByFamily, Flags: netlink.Request | netlink.Dump}, Data: data,
	})
	if err != nil {
		return nil, fmt.Errorf("listing the connections to %s: %w", remote, err)
	}
	var sockets []Socket
	for _, r := range replies {
		if s, ok := socketOf(r.Data); ok && s.Remote == remote {
			sockets = append(sockets, s)
		}
	}
	return sockets, nil
}

// Break ends a connection at once, even one of the kernel's own: its user sees it aborted, and its peer gets a reset.
// It succeeds if the connection has ended already. Afterwards the kernel decides again where the next connection from
// the same port goes:
//
//	established     the reset marks the tracking entry as closed, and the next first packet replaces it
//	being opened    no reset is sent, so the entry is removed before the socket (Forget)
//
// The user may open the next connection before Break returns. So Break removes no entry after the socket: the
// entry could belong to the next connection, and its answers would be lost. If the kernel cannot destroy connections (it
// lacks CONFIG_INET_DIAG_DESTROY), Break only forgets the connection and returns an error. The peer of the next packet
// then resets it.
func (s Socket) Break() error {
	if s.Opening {
		return errors.Join(s.Forget(), s.destroy())
	}
	err := s.destroy()
	if err != nil {
		err = errors.Join(err, s.Forget())
	}
	return err
}

// destroy makes the kernel abort the socket of a connection.
func (f Flow) destroy() error {
	data := f.diag()
	binary.NativeEndian.PutUint32(data[4:], ^uint32(0)) // in any state
	for i := range 8 {
		data[socketInRequest+cookieInSocketID+i] = 0xff // INET_DIAG_NOCOOKIE
	}
	_, err := request(unix.NETLINK_INET_DIAG, netlink.Message{
		Header: netlink.Header{Type: sockDestroy, Flags: netlink.Request | netlink.Acknowledge}, Data: data,
	})
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("closing the connection from %s to %s: %w", f.Local, f.Remote, err)
	}
	return nil
}

// diag is a struct inet_diag_req_v2 about a connection. A zero Local matches any.
func (f Flow) diag() []byte {
	data := make([]byte, diagRequest)
	data[0], data[1] = f.family(), unix.IPPROTO_TCP
	id := data[socketInRequest:]
	binary.BigEndian.PutUint16(id, f.Local.Port())
	binary.BigEndian.PutUint16(id[2:], f.Remote.Port())
	if f.Local.IsValid() {
		copy(id[4:20], f.Local.Addr().AsSlice())
	}
	copy(id[20:36], f.Remote.Addr().AsSlice())
	return data
}

// socketOf parses a struct inet_diag_msg. A socket for both families that uses IPv4 is an IPv4 socket.
func socketOf(data []byte) (Socket, bool) {
	if len(data) < diagAnswer {
		return Socket{}, false
	}
	id := data[socketInAnswer : socketInAnswer+diagSocket]
	bytes := 16
	if data[0] == unix.AF_INET {
		bytes = 4
	}
	local, _ := netip.AddrFromSlice(id[4 : 4+bytes])
	remote, _ := netip.AddrFromSlice(id[20 : 20+bytes])
	s := Socket{Flow: Flow{
		Local:  netip.AddrPortFrom(local.Unmap(), binary.BigEndian.Uint16(id)),
		Remote: netip.AddrPortFrom(remote.Unmap(), binary.BigEndian.Uint16(id[2:])),
	}}
	if data[stateInAnswer] == tcpSynSent {
		s.Opening = true
		s.Retry = time.Duration(binary.NativeEndian.Uint32(data[expiresInAnswer:])) * time.Millisecond
	}
	return s, true
}

// request sends one message and returns the kernel's answers.
func request(protocol int, m netlink.Message) ([]netlink.Message, error) {
	c, err := netlink.Dial(protocol, nil)
	if err != nil {
		return nil, err
	}
	replies, err := c.Execute(m)
	return replies, errors.Join(err, c.Close())
}
