package nbd

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
)

// clientHandshake is the client's side of negotiation. It needs a server that knows NBD_OPT_GO. The server may refuse
// every other option.
type clientHandshake struct {
	conn   net.Conn
	in     source
	name   string
	secret []byte
	tls    bool // everything except STARTTLS goes over TLS
	// describe requests a description (NBD_OPT_INFO) instead of the export: nothing is opened.
	describe bool

	binding []byte // of the TLS connection

	structured bool
	hasStatus  bool
	statusID   uint32
	got        info
}

// maxReplies limits the replies to one option, so that a server cannot delay a client forever.
const maxReplies = 1024

// runWithin runs the handshake. It closes the connection when ctx is done.
func (h *clientHandshake) runWithin(ctx context.Context) error {
	interrupted, conn := make(chan struct{}), h.conn
	stop := context.AfterFunc(ctx, func() {
		_ = conn.Close()
		close(interrupted)
	})
	err := h.run()
	if stop() {
		return err
	}
	<-interrupted
	if err == nil {
		return ctx.Err()
	}
	return fmt.Errorf("%w: %w", ctx.Err(), err) // one line: people read it in Events
}

func (h *clientHandshake) run() error {
	if len(h.name) > maxName {
		return fmt.Errorf("the export name has %d bytes, more than the maximum of %d", len(h.name), maxName)
	}
	var greeting [18]byte
	if _, err := io.ReadFull(h.in, greeting[:]); err != nil {
		return fmt.Errorf("read the server's greeting: %w", explainEOF(err))
	}
	flags := be.Uint16(greeting[16:])
	if be.Uint64(greeting[:]) != magicServer || be.Uint64(greeting[8:]) != magicOption || flags&flagFixedNewstyle == 0 {
		return fmt.Errorf("%w: the server does not offer the fixed newstyle handshake", ErrProtocol)
	}
	answer := be.AppendUint32(nil, uint32(flags&(flagFixedNewstyle|flagNoZeroes)))
	if _, err := h.conn.Write(answer); err != nil {
		return fmt.Errorf("send the client flags: %w", err)
	}
	steps := []func() error{h.authenticate, h.askStructured, h.askStatus, h.open}
	if h.tls {
		steps[0] = h.secure
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// ask sends one option. It passes every reply before the ACK to each.
func (h *clientHandshake) ask(option uint32, data []byte, each func(reply uint32, data []byte) error) error {
	if _, err := h.conn.Write(appendOption(nil, option, data)); err != nil {
		return fmt.Errorf("send option %#x: %w", option, err)
	}
	for range maxReplies {
		opt, reply, data, err := readOptionReply(h.in)
		switch {
		case err != nil:
			return fmt.Errorf("read the reply to option %#x: %w", option, explainEOF(err))
		case opt != option:
			return fmt.Errorf("%w: reply to option %#x, expected a reply to option %#x", ErrProtocol, opt, option)
		case reply == repAck:
			return nil
		case reply&repErrBit != 0:
			return optionError(option, reply, truncate(string(data)))
		}
		if err := each(reply, data); err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: more than %d replies to option %#x", ErrProtocol, maxReplies, option)
}

func noReply(reply uint32, _ []byte) error {
	return fmt.Errorf("%w: unexpected reply %#x to an option", ErrProtocol, reply)
}

// isRefusal reports whether the server merely does not offer an option, so that the handshake may continue without it.
func isRefusal(err error) bool {
	var o *OptionError
	return errors.As(err, &o)
}

// secure starts TLS, proves the secret and requires the server's proof. No answer of the server, or of an attacker in
// between, makes it continue without these steps.
func (h *clientHandshake) secure() error {
	if len(h.secret) == 0 {
		return errors.New("TLS requires a secret: without it the client cannot identify the server")
	}
	if err := h.beginTLS(); err != nil {
		return err
	}
	proved := false
	err := h.ask(optAuthTLS, channelProof(h.secret, h.binding, clientEnd), func(reply uint32, data []byte) error {
		if reply != repAuthProof {
			return noReply(reply, data)
		}
		proved = hmac.Equal(data, channelProof(h.secret, h.binding, serverEnd))
		return nil
	})
	switch {
	case err != nil:
		return fmt.Errorf("authenticate: %w", err)
	case !proved:
		return fmt.Errorf("authenticate: %w", ErrImpostor)
	}
	return nil
}

// beginTLS continues over TLS. At this time nothing is known about the peer.
func (h *clientHandshake) beginTLS() error {
	if err := h.ask(optStartTLS, nil, noReply); err != nil {
		return fmt.Errorf("start TLS: %w", err)
	}
	s, err := newSecureConn(h.conn, h.in, func(c net.Conn) *tls.Conn { return tls.Client(c, newClientTLS()) })
	if err != nil {
		return err
	}
	h.conn, h.in, h.binding = s, bufio.NewReaderSize(s, maxRecord), s.binding
	return nil
}

func (h *clientHandshake) authenticate() error {
	if len(h.secret) == 0 {
		return nil
	}
	if _, err := h.conn.Write(appendOption(nil, optAuth, nil)); err != nil {
		return fmt.Errorf("request a nonce: %w", err)
	}
	opt, reply, nonce, err := readOptionReply(h.in)
	if err != nil {
		return fmt.Errorf("read the nonce: %w", explainEOF(err))
	}
	if opt == optAuth && reply&repErrBit != 0 {
		return fmt.Errorf("authenticate: %w", optionError(opt, reply, truncate(string(nonce))))
	}
	if opt != optAuth || reply != repAuthNonce || len(nonce) != nonceLen {
		return fmt.Errorf("%w: the reply is not a nonce", ErrProtocol)
	}
	proof := append(authProof(h.secret, nonce, h.name), h.name...)
	if err := h.ask(optAuth, proof, noReply); err != nil {
		return fmt.Errorf("authenticate: %w", err)
	}
	return nil
}

func (h *clientHandshake) askStructured() error {
	err := h.ask(optStructuredReply, nil, noReply)
	h.structured = err == nil
	if isRefusal(err) {
		return nil
	}
	return err
}

func (h *clientHandshake) askStatus() error {
	if !h.structured {
		return nil
	}
	data := metaOption{Name: h.name, Queries: []string{contextAllocation}}.encode()
	err := h.ask(optSetMetaContext, data, func(reply uint32, data []byte) error {
		if reply != repMetaContext || len(data) < 4 {
			return noReply(reply, data)
		}
		if string(data[4:]) == contextAllocation {
			h.hasStatus, h.statusID = true, be.Uint32(data)
		}
		return nil
	})
	if isRefusal(err) {
		return nil
	}
	return err
}

func (h *clientHandshake) open() error {
	h.got.Name = h.name
	data := goOption{Name: h.name, Infos: []uint16{infoName, infoDescription, infoBlockSize}}.encode()
	option := optGo
	if h.describe {
		option = optInfo
	}
	err := h.ask(option, data, func(reply uint32, data []byte) error {
		if reply != repInfo {
			return noReply(reply, data)
		}
		return h.got.add(data)
	})
	if err != nil {
		return err
	}
	bs := h.got.BlockSize.withDefaults()
	switch {
	case !h.got.HasExport:
		return fmt.Errorf("%w: the server did not send the size of the export", ErrProtocol)
	case h.got.Export.Size > math.MaxInt64:
		return fmt.Errorf("%w: the export's size of %d bytes is too large", ErrProtocol, h.got.Export.Size)
	case bs.Min&(bs.Min-1) != 0 || bs.Min > bs.Max:
		return fmt.Errorf("%w: invalid block sizes: minimum %d, maximum %d", ErrProtocol, bs.Min, bs.Max)
	}
	return nil
}

func (h *clientHandshake) exportInfo() ExportInfo {
	f := h.got.Export.Flags
	return ExportInfo{
		Name: h.got.Name, Description: h.got.Description, Size: int64(h.got.Export.Size),
		ReadOnly: f&txReadOnly != 0, MultiConn: f&txMultiConn != 0, CanFlush: f&txFlush != 0, CanFUA: f&txFUA != 0,
		CanTrim: f&txTrim != 0, CanZero: f&txWriteZeroes != 0,
		Structured: h.structured, CanExtents: h.hasStatus, BlockSize: h.got.BlockSize.withDefaults(),
	}
}
