// Package flow finds where the TCP connections of a network really lead, and breaks them. It uses netlink to ask the
// kernel about the network of the calling thread (util/netns). It must not know who owns the connections, nor why they
// are broken.
//
//	socket  10.0.0.7:801 ─► 10.96.0.9:2049        a Service's address, as the socket knows it
//	                             │ conntrack: destination NAT
//	                             ▼
//	peer                    10.1.3.4:2049         a pod's address, which the connection keeps for its life
//
// A load balancer that does not use the kernel's connection tracking (eBPF programs at sockets) shows no peer:
// ErrNoPeer.
package flow

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// ErrNoPeer: the kernel does not track the connection.
var ErrNoPeer = errors.New("the kernel does not track this connection")

// Flow is a TCP connection as its socket knows it.
type Flow struct{ Local, Remote netip.AddrPort }

// Messages and attributes of ctnetlink, from <linux/netfilter/nfnetlink_conntrack.h>.
const (
	ctGet    = unix.NFNL_SUBSYS_CTNETLINK<<8 | 1
	ctDelete = unix.NFNL_SUBSYS_CTNETLINK<<8 | 2

	ctaTupleOrig  = 1
	ctaTupleReply = 2

	ctaTupleIP    = 1
	ctaTupleProto = 2

	ctaProtoNumber          = 1
	ctaProtoSourcePort      = 2
	ctaProtoDestinationPort = 3

	// nfgenHeader is the length of struct nfgenmsg.
	nfgenHeader = 4
)

// ipAttributes are the attributes of source and destination, by family.
var ipAttributes = map[uint8][2]uint16{unix.AF_INET: {1, 2}, unix.AF_INET6: {3, 4}}

func (f Flow) family() uint8 {
	if f.Remote.Addr().Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// Peer is where a connection really leads. The error is ErrNoPeer if the kernel does not track it, or no longer tracks
// it.
func (f Flow) Peer() (netip.AddrPort, error) {
	reply, err := f.ask(ctGet, netlink.Request)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("asking the kernel for the peer of the connection from %s to %s: %w", f.Local, f.Remote, err)
	}
	if len(reply) >= nfgenHeader {
		if peer, ok := replySource(reply[nfgenHeader:], f.family()); ok {
			return peer, nil
		}
	}
	return netip.AddrPort{}, ErrNoPeer
}

// Forget makes the kernel decide again where the next packet of a connection goes. It succeeds if the kernel does not
// track the connection.
func (f Flow) Forget() error {
	_, err := f.ask(ctDelete, netlink.Request|netlink.Acknowledge)
	if err != nil && !errors.Is(err, ErrNoPeer) {
		return fmt.Errorf("removing the connection from %s to %s from the kernel's connection tracking: %w", f.Local, f.Remote, err)
	}
	return nil
}

func (f Flow) ask(kind netlink.HeaderType, flags netlink.HeaderFlags) ([]byte, error) {
	family := f.family()
	e := netlink.NewAttributeEncoder()
	e.ByteOrder = binary.BigEndian
	e.Nested(ctaTupleOrig, func(e *netlink.AttributeEncoder) error {
		e.Nested(ctaTupleIP, func(e *netlink.AttributeEncoder) error {
			e.Bytes(ipAttributes[family][0], f.Local.Addr().AsSlice())
			e.Bytes(ipAttributes[family][1], f.Remote.Addr().AsSlice())
			return nil
		})
		e.Nested(ctaTupleProto, func(e *netlink.AttributeEncoder) error {
			e.Uint8(ctaProtoNumber, unix.IPPROTO_TCP)
			e.Uint16(ctaProtoSourcePort, f.Local.Port())
			e.Uint16(ctaProtoDestinationPort, f.Remote.Port())
			return nil
		})
		return nil
	})
	attributes, err := e.Encode()
	if err != nil {
		return nil, err
	}
	reply, err := exchange(kind, flags, append([]byte{family, unix.NFNETLINK_V0, 0, 0}, attributes...))
	if errors.Is(err, unix.ENOENT) {
		return nil, ErrNoPeer
	}
	return reply, err
}

// exchangeTimeout limits the wait for an answer, which the kernel gives within the call.
const exchangeTimeout = 5 // seconds

// exchange sends one message to netfilter and returns the content of the answer; nothing, if it is an acknowledgement.
// It has its own socket: the kernel marks the only answer to ctGet as a part of several, and a netlink.Conn would wait
// for an end that never comes.
func exchange(kind netlink.HeaderType, flags netlink.HeaderFlags, data []byte) ([]byte, error) {
	const header = unix.SizeofNlMsghdr
	message, err := netlink.Message{Header: netlink.Header{Length: uint32(header + len(data)), Type: kind, Flags: flags}, Data: data}.MarshalBinary()
	if err != nil {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: exchangeTimeout}); err != nil {
		return nil, err
	}
	if err := unix.Sendto(fd, message, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, err
	}
	answer := make([]byte, 16<<10)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil {
		return nil, err
	}
	if n < header {
		return nil, errors.New("the kernel's answer is too short")
	}
	body := answer[header:n]
	if netlink.HeaderType(binary.NativeEndian.Uint16(answer[4:])) != netlink.Error {
		return body, nil
	}
	if len(body) < 4 {
		return nil, errors.New("the kernel's answer is too short")
	}
	if code := int32(binary.NativeEndian.Uint32(body)); code != 0 {
		return nil, unix.Errno(-code)
	}
	return nil, nil
}

// replySource finds the source of the replies among a connection's attributes. It ignores unknown attributes.
func replySource(attributes []byte, family uint8) (netip.AddrPort, bool) {
	d, err := netlink.NewAttributeDecoder(attributes)
	if err != nil {
		return netip.AddrPort{}, false
	}
	d.ByteOrder = binary.BigEndian
	var address netip.Addr
	var port uint16
	for d.Next() {
		if d.Type() != ctaTupleReply {
			continue
		}
		d.Nested(func(d *netlink.AttributeDecoder) error {
			for d.Next() {
				switch d.Type() {
				case ctaTupleIP:
					d.Nested(func(d *netlink.AttributeDecoder) error {
						for d.Next() {
							if d.Type() == ipAttributes[family][0] {
								address, _ = netip.AddrFromSlice(d.Bytes())
							}
						}
						return nil
					})
				case ctaTupleProto:
					d.Nested(func(d *netlink.AttributeDecoder) error {
						for d.Next() {
							if d.Type() == ctaProtoSourcePort {
								port = d.Uint16()
							}
						}
						return nil
					})
				}
			}
			return nil
		})
	}
	return netip.AddrPortFrom(address, port), d.Err() == nil && address.IsValid() && port != 0
}
