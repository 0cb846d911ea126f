package nbd

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
)

// errClientLeft ends a negotiation in which the client opened no export, without any error.
var errClientLeft = errors.New("the client ended the handshake")

// negotiator is the server's side of one handshake. It runs in the connection's only goroutine.
type negotiator struct {
	exporter Exporter
	conn     net.Conn
	in       source
	out      []byte // replies of the current option, written at its end
	log      *logrus.Entry
	sparse   *sparseLog
	auth     authenticator
	tls      *serverTLS // nil if TLS is not offered
	tlsOnly  func(export string) bool
	drop     func()
	proved   func()                   // called when the peer has proved a secret
	opened   func(took time.Duration) // called when the exporter has answered

	noZeroes   bool
	structured bool
	metaFor    string // the export for which base:allocation was selected, if metaSet
	metaSet    bool
	openedName string // the name under which the export was opened; may differ from Export.Name
}

// run negotiates until the client has an export, which the caller must close, or until the client leaves.
func (n *negotiator) run(ctx context.Context) (*Export, error) {
	greeting := be.AppendUint64(nil, magicServer)
	greeting = be.AppendUint64(greeting, magicOption)
	greeting = be.AppendUint16(greeting, flagFixedNewstyle|flagNoZeroes)
	if _, err := n.conn.Write(greeting); err != nil {
		return nil, fmt.Errorf("send the greeting: %w", err)
	}
	var flags [4]byte
	if _, err := io.ReadFull(n.in, flags[:]); err != nil {
		return nil, fmt.Errorf("read the client flags: %w", err)
	}
	got := be.Uint32(flags[:])
	if got&^uint32(flagFixedNewstyle|flagNoZeroes) != 0 {
		return nil, fmt.Errorf("%w: unknown client flags %#x", ErrProtocol, got)
	}
	n.noZeroes = got&uint32(flagNoZeroes) != 0
	for range maxOptions {
		exp, err := n.option(ctx)
		if err == nil {
			err = n.flush()
		}
		if err != nil {
			if exp != nil && exp.Closed != nil {
				exp.Closed()
			}
			return nil, err
		}
		if exp != nil {
			return exp, nil
		}
	}
	return nil, fmt.Errorf("%w: more than %d options", ErrProtocol, maxOptions)
}

// maxOptions limits the options of one handshake.
const maxOptions = 256

// option reads and answers one option. If it returns an export, the handshake is complete.
func (n *negotiator) option(ctx context.Context) (*Export, error) {
	opt, data, err := readOption(n.in)
	if errors.Is(err, errTooBig) {
		n.reply(opt, repErrTooBig, "the option is too long")
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read an option: %w", err)
	}
	switch opt {
	case optExportName:
		return n.exportName(ctx, string(data))
	case optGo, optInfo:
		return n.goOrInfo(ctx, opt, data)
	case optAbort:
		n.reply(opt, repAck, "")
		return nil, errors.Join(n.flush(), errClientLeft)
	case optList:
		n.list(ctx, data)
	case optStructuredReply:
		n.structuredReply(data)
	case optListMetaContext, optSetMetaContext:
		n.metaContext(opt, data)
	case optAuth:
		return nil, n.authenticate(data)
	case optAuthTLS:
		return nil, n.authenticateTLS(data)
	case optStartTLS:
		return nil, n.startTLS(data)
	default:
		n.reply(opt, repErrUnsup, "the option is not supported")
	}
	return nil, nil
}

func (n *negotiator) reply(opt, rep uint32, data string) {
	n.out = appendOptionReply(n.out, opt, rep, []byte(data))
}

func (n *negotiator) flush() error {
	if len(n.out) == 0 {
		return nil
	}
	_, err := n.conn.Write(n.out)
	n.out = n.out[:0]
	return err
}

// startTLS continues over TLS. It discards everything that was negotiated or proved without TLS.
func (n *negotiator) startTLS(data []byte) error {
	switch {
	case n.tls == nil:
		n.reply(optStartTLS, repErrUnsup, "TLS is not supported")
		return nil
	case len(data) != 0 || n.auth.binding != nil:
		n.reply(optStartTLS, repErrInvalid, "TLS can be started only once, and its option has no data")
		return nil
	}
	config, err := n.tls.get()
	if err != nil {
		return err
	}
	n.reply(optStartTLS, repAck, "")
	if err := n.flush(); err != nil {
		return err
	}
	s, err := newSecureConn(n.conn, n.in, func(c net.Conn) *tls.Conn { return tls.Server(c, config) })
	if err != nil {
		return err
	}
	n.conn, n.in = s, bufio.NewReaderSize(s, maxRecord)
	n.structured, n.metaSet, n.metaFor = false, false, ""
	n.auth.binding, n.auth.nonce, n.auth.proved = s.binding, nil, nil
	return nil
}

func (n *negotiator) list(ctx context.Context, data []byte) {
	if len(data) != 0 {
		n.reply(optList, repErrInvalid, "the list option has no data")
		return
	}
	for _, name := range n.exporter.List(ctx) {
		n.reply(optList, repServer, string(appendString(nil, name)))
	}
	n.reply(optList, repAck, "")
}

func (n *negotiator) structuredReply(data []byte) {
	if len(data) != 0 {
		n.reply(optStructuredReply, repErrInvalid, "the structured reply option has no data")
		return
	}
	n.structured = true
	n.reply(optStructuredReply, repAck, "")
}

// metaContext answers for any name, known or not. The one context is the same for all names, and a name is checked when
// it is opened.
func (n *negotiator) metaContext(opt uint32, data []byte) {
	o, err := decodeMetaOption(data)
	if err != nil {
		n.reply(opt, repErrInvalid, err.Error())
		return
	}
	if !n.structured {
		n.reply(opt, repErrInvalid, "structured replies must be negotiated first")
		return
	}
	found := slices.Contains(o.Queries, contextAllocation)
	if opt == optListMetaContext {
		found = found || len(o.Queries) == 0 || slices.Contains(o.Queries, "base:")
	} else {
		n.metaFor, n.metaSet = o.Name, found
	}
	if found {
		id := be.AppendUint32(nil, contextID)
		n.reply(opt, repMetaContext, string(append(id, contextAllocation...)))
	}
	n.reply(opt, repAck, "")
}

func (n *negotiator) authenticate(data []byte) error {
	if n.auth.secret == nil {
		n.reply(optAuth, repErrUnsup, "authentication is not offered")
		return nil
	}
	if n.auth.binding != nil {
		n.reply(optAuth, repErrInvalid, "over TLS, a proof that is not bound to TLS is refused")
		return nil
	}
	if len(data) == 0 {
		nonce, err := n.auth.challenge()
		if err != nil {
			return err
		}
		n.reply(optAuth, repAuthNonce, string(nonce))
		return nil
	}
	if n.auth.verify(data) {
		n.proved()
		n.reply(optAuth, repAck, "")
		return nil
	}
	return n.refuseProof(optAuth)
}

// authenticateTLS is authenticate over TLS.
func (n *negotiator) authenticateTLS(data []byte) error {
	switch {
	case n.auth.secret == nil || n.tls == nil:
		n.reply(optAuthTLS, repErrUnsup, "authentication is not offered")
		return nil
	case n.auth.binding == nil:
		n.reply(optAuthTLS, repErrTLSReqd, "this proof requires TLS")
		return nil
	}
	proof := n.auth.verifyChannel(data)
	if proof == nil {
		return n.refuseProof(optAuthTLS)
	}
	n.proved()
	n.reply(optAuthTLS, repAuthProof, string(proof))
	n.reply(optAuthTLS, repAck, "")
	return nil
}

func (n *negotiator) refuseProof(opt uint32) error {
	n.sparse.log(n.log, logrus.WarnLevel, "Refused a wrong proof of an export's secret")
	n.reply(opt, repErrPolicy, "authentication failed")
	if n.auth.failures >= maxAuthFailures {
		return errors.Join(n.flush(), errors.New("too many wrong proofs"))
	}
	return nil
}

// open resolves a name. It turns every refusal into a reply code and a text that the peer may see.
func (n *negotiator) open(ctx context.Context, name string, infoOnly bool) (*Export, uint32, string) {
	if !n.auth.admits(name) {
		return nil, repErrPolicy, "authentication is required"
	}
	proved := n.auth.hasProved(name)
	if n.tlsOnly != nil && n.auth.binding == nil && n.tlsOnly(name) {
		n.note(proved, n.log.WithField("export", name), logrus.WarnLevel, "Refused to open an export without TLS")
		return nil, repErrTLSReqd, "this export can be opened only over TLS"
	}
	began := time.Now()
	exp, err := n.exporter.Open(ctx, name, ConnInfo{
		LocalAddr: n.conn.LocalAddr(), RemoteAddr: n.conn.RemoteAddr(),
		Authenticated: proved, InfoOnly: infoOnly, Drop: n.drop,
	})
	n.opened(time.Since(began))
	if err == nil {
		n.openedName = name
		return exp, 0, ""
	}
	log := n.log.WithField("export", name).WithError(err)
	var policy *PolicyError
	switch {
	case errors.Is(err, ErrUnknownExport):
		n.note(proved, log, logrus.DebugLevel, "Refused an unknown export")
		return nil, repErrUnknown, truncate(err.Error())
	case errors.As(err, &policy):
		n.note(proved, log, logrus.InfoLevel, "Refused to open an export")
		return nil, repErrPolicy, truncate(policy.Text)
	case errors.Is(err, ESHUTDOWN):
		return nil, repErrShutdown, "the server is shutting down"
	}
	n.note(proved, log, logrus.WarnLevel, "Opening an export failed")
	return nil, repErrPlatform, "the export cannot be opened"
}

// note logs the outcome of an Open: always if the peer has proved itself, otherwise sparsely.
func (n *negotiator) note(proved bool, log *logrus.Entry, level logrus.Level, message string) {
	if proved {
		log.Log(level, message)
		return
	}
	n.sparse.log(log, level, message)
}

func (n *negotiator) goOrInfo(ctx context.Context, opt uint32, data []byte) (*Export, error) {
	o, err := decodeGoOption(data)
	if err != nil {
		n.reply(opt, repErrInvalid, err.Error())
		return nil, nil
	}
	exp, code, text := n.open(ctx, o.Name, opt == optInfo)
	if exp == nil {
		n.reply(opt, code, text)
		return nil, nil
	}
	n.reply(opt, repInfo, string(exportInfo{Size: uint64(exp.Size), Flags: exp.txFlags(n.structured)}.encode()))
	if slices.Contains(o.Infos, infoBlockSize) {
		n.reply(opt, repInfo, string(encodeBlockSize(exp.BlockSize.withDefaults())))
	}
	if slices.Contains(o.Infos, infoName) {
		n.reply(opt, repInfo, string(be.AppendUint16(nil, infoName))+exp.Name)
	}
	if slices.Contains(o.Infos, infoDescription) && exp.Description != "" {
		n.reply(opt, repInfo, string(be.AppendUint16(nil, infoDescription))+truncate(exp.Description))
	}
	n.reply(opt, repAck, "")
	if opt == optGo {
		return exp, nil
	}
	if exp.Closed != nil {
		exp.Closed()
	}
	return nil, nil
}

// exportName handles the old option to open an export. Its only way to refuse is to close the connection.
func (n *negotiator) exportName(ctx context.Context, name string) (*Export, error) {
	if len(name) > maxName {
		return nil, fmt.Errorf("%w: the export name has %d bytes", ErrProtocol, len(name))
	}
	exp, _, text := n.open(ctx, name, false)
	if exp == nil {
		return nil, fmt.Errorf("open export %q: %s", name, text)
	}
	n.out = be.AppendUint64(n.out, uint64(exp.Size))
	n.out = be.AppendUint16(n.out, exp.txFlags(n.structured))
	if !n.noZeroes {
		n.out = append(n.out, make([]byte, 124)...)
	}
	return exp, nil
}

func truncate(s string) string {
	return strings.ToValidUTF8(s[:min(len(s), maxErrorText)], "")
}
