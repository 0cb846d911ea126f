package nbd

import (
	"context"
	"errors"
	"fmt"
	"syscall"
)

// Errno is an error number. On the wire only those named below exist; every other is sent as the nearest of them.
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
	// ErrUnknownOutcome is wrapped by a client error when the request may have reached the server and no reply was seen.
	ErrUnknownOutcome = errors.New("outcome unknown")
	// ErrNotSent is wrapped by a client error when no byte of the request was sent.
	ErrNotSent = errors.New("request not sent")
	// ErrClosed is the reason of a Client that was closed by its owner.
	ErrClosed = errors.New("client closed")
	// ErrUnknownExport says that there is no export of that name. An Exporter may return it, wrapped or not.
	ErrUnknownExport = errors.New("unknown export")
	// ErrProtocol is wrapped by errors that report a peer which broke the protocol. The connection is given up.
	ErrProtocol = errors.New("protocol violation")
)

// Error is an error that travels: what a Backend returned on the server side, what the Client returns for it on the other.
// errors.Is(err, syscall.ENOSPC) and the like hold on both.
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

// ErrImpostor says that a server did not prove the secret over TLS: it is not the one that was meant, or somebody is in between.
var ErrImpostor = errors.New("the server has not proved that it knows the secret")

// PolicyError says that the server knows the export and will not serve it to this peer, now or ever, with the reason.
type PolicyError struct{ Text string }

// Error returns the reason.
func (e *PolicyError) Error() string { return "refused by policy: " + e.Text }

// ErrPolicy returns a *PolicyError. An Exporter uses it to refuse; text is sent to the client.
func ErrPolicy(text string) error { return &PolicyError{Text: text} }

// OptionError is the refusal of a handshake option for a reason that has no type of its own.
type OptionError struct {
	Option, Reply uint32
	Text          string
}

// Error names the option and the reply by their numbers.
func (e *OptionError) Error() string {
	return fmt.Sprintf("option %#x refused with reply %#x: %s", e.Option, e.Reply, e.Text)
}

// optionError turns an error reply into the error of its kind.
func optionError(option, reply uint32, text string) error {
	switch reply {
	case repErrUnknown:
		return fmt.Errorf("%w: %s", ErrUnknownExport, text)
	case repErrPolicy:
		return &PolicyError{Text: text}
	}
	return &OptionError{Option: option, Reply: reply, Text: text}
}

// wireError gives what to send for err: a number of the protocol and a text of bounded length.
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
		no = EIO // the protocol has no word for it; an I/O error is the one that callers trust least
	}
	return wireErrno(no), msg[:min(len(msg), maxErrorText)]
}

// maxErrorText bounds the text sent with an error, in bytes.
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

// errnoFromWire reads a number from the wire. One that the protocol does not name counts as EINVAL, as the specification says.
func errnoFromWire(v uint32) Errno {
	switch no := Errno(v); no {
	case EPERM, EIO, ENOMEM, EINVAL, ENOSPC, EOVERFLOW, ENOTSUP, ESHUTDOWN:
		return no
	}
	return EINVAL
}
