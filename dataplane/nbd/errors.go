package nbd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
)

// Errno is an error number. On the wire only the numbers below exist; any other number is sent as the nearest of them.
type Errno = syscall.Errno

// The error numbers of the protocol. Their values on the wire are those of Linux.
const (
	EPERM     = syscall.EPERM
	EIO       = syscall.EIO
	ENOMEM    = syscall.ENOMEM
	EINVAL    = syscall.EINVAL
	ENOSPC    = syscall.ENOSPC
	EOVERFLOW = syscall.EOVERFLOW
	ENOTSUP   = syscall.ENOTSUP
	ESHUTDOWN = syscall.ESHUTDOWN
)

var (
	// ErrUnknownOutcome is wrapped by a client error if the request may have reached the server and no reply came.
	ErrUnknownOutcome = errors.New("no reply arrived; it is unknown whether the request was executed")
	// ErrNotSent is wrapped by a client error if no byte of the request was sent.
	ErrNotSent = errors.New("the request was not sent")
	// ErrClosed is the reason of a Client that its owner has closed.
	ErrClosed = errors.New("the client was closed")
	// ErrUnknownExport says that there is no export with that name. An Exporter may return it, wrapped or not.
	ErrUnknownExport = errors.New("unknown export")
	// ErrProtocol is wrapped by errors that report a peer which broke the protocol. The connection is abandoned.
	ErrProtocol = errors.New("protocol violation")
)

// Error is an error that goes over the wire. On the server side a Backend returns it, and the Client returns it on the
// other side. errors.Is(err, syscall.ENOSPC) and the like work on both sides.
type Error struct {
	Errno Errno
	Msg   string
}

// Error returns the message, if there is one, and the meaning of the number.
func (e *Error) Error() string {
	if e.Msg == "" {
		return e.Errno.Error()
	}
	return e.Msg + ": " + e.Errno.Error()
}

// Unwrap returns the number.
func (e *Error) Unwrap() error { return e.Errno }

func errorf(no Errno, format string, args ...any) *Error {
	return &Error{Errno: no, Msg: fmt.Sprintf(format, args...)}
}

// ErrImpostor says that a server did not prove the secret over TLS. It is not the intended server, or an attacker is in
// between.
var ErrImpostor = errors.New("the server did not prove that it knows the secret")

// PolicyError says that the server knows the export and will never serve it to this peer. It contains the reason.
type PolicyError struct{ Text string }

// Error returns the reason.
func (e *PolicyError) Error() string { return "the server refuses the export: " + e.Text }

// ErrPolicy returns a *PolicyError. An Exporter uses it to refuse an export; text is sent to the client.
func ErrPolicy(text string) error { return &PolicyError{Text: text} }

// OptionError is the refusal of a handshake option for a reason that has no type of its own.
type OptionError struct {
	Option, Reply uint32
	Text          string
}

// Error names the option and the reply by their numbers.
func (e *OptionError) Error() string {
	return fmt.Sprintf("the server refused option %#x with reply %#x: %s", e.Option, e.Reply, e.Text)
}

// explainEOF says in words that a server has closed the connection. Other errors stay as they are.
func explainEOF(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("the server closed the connection: %w", err)
	}
	return err
}

// optionError turns an error reply into the matching error.
func optionError(option, reply uint32, text string) error {
	switch reply {
	case repErrUnknown:
		return fmt.Errorf("%w: %s", ErrUnknownExport, text)
	case repErrPolicy:
		return &PolicyError{Text: text}
	}
	return &OptionError{Option: option, Reply: reply, Text: text}
}

// wireError returns what is sent for err: a number of the protocol and a text of limited length.
func wireError(err error) (uint32, string) {
	var e *Error
	var no Errno
	msg := err.Error()
	switch {
	case errors.As(err, &e):
		no, msg = e.Errno, e.Msg
	case errors.As(err, &no):
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		no = ESHUTDOWN
	}
	if errors.Is(err, ErrUnknownOutcome) {
		no = EIO // the protocol has no number for it; callers trust an I/O error least
	}
	return wireErrno(no), msg[:min(len(msg), maxErrorText)]
}

// maxErrorText limits the text sent with an error, in bytes.
const maxErrorText = 1024

func wireErrno(no Errno) uint32 {
	switch no {
	case EPERM, EIO, ENOMEM, EINVAL, ENOSPC, EOVERFLOW, ENOTSUP, ESHUTDOWN:
		return uint32(no)
	case syscall.EACCES, syscall.EROFS:
		return uint32(EPERM)
	case syscall.EDQUOT, syscall.EFBIG:
		return uint32(ENOSPC)
	}
	return uint32(EIO)
}

// errnoFromWire reads a number from the wire. A number that the protocol does not name counts as EINVAL, as in the
// specification.
func errnoFromWire(v uint32) Errno {
	switch no := Errno(v); no {
	case EPERM, EIO, ENOMEM, EINVAL, ENOSPC, EOVERFLOW, ENOTSUP, ESHUTDOWN:
		return no
	}
	return EINVAL
}
