package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
)

// The errors of a call; check them with errors.Is. All except ErrUnknown mean that nothing was changed.
var (
	// ErrNotFound (404): the object that the call names does not exist.
	ErrNotFound = errors.New("not found")
	// ErrConflict (409): the state of the object does not allow it now.
	ErrConflict = errors.New("conflict")
	// ErrInvalid (400, 422): the request breaks a rule, and would break it again.
	ErrInvalid = errors.New("invalid request")
	// ErrInsufficient (422): the disks have no room for the request.
	ErrInsufficient = errors.New("insufficient storage")
	// ErrUnauthorized (401, 403): the caller has no valid token, or no right.
	ErrUnauthorized = errors.New("not authorized")
	// ErrUnavailable (503, 429): no daemon leads at the moment, or the leader is too busy; try again in a second.
	ErrUnavailable = errors.New("no manager is ready to answer")
	// ErrUnknown: it is unknown whether the call was carried out; the caller must find out with another call.
	ErrUnknown = errors.New("it is unknown whether the request was carried out")
)

// Error is a refusal by the server.
type Error struct {
	Request string // method and URL
	Status  int    // HTTP status
	Code    string
	Message string
	Detail  string
}

func newError(request string, status int, body []byte) error {
	e := &Error{Request: request, Status: status, Code: http.StatusText(status)}
	var wire v1.Error
	if json.Unmarshal(body, &wire) == nil && wire.Type == v1.TypeError {
		e.Code, e.Message, e.Detail = wire.Code, wire.Message, wire.Detail
		return e
	}
	// The server did not write this; perhaps a proxy did. Its text may help a person.
	e.Message = strings.ToValidUTF8(strings.TrimSpace(string(body[:min(len(body), 200)])), "?")
	return e
}

// Error returns the server's message, which is written for people.
func (e *Error) Error() string {
	if e.Message == "" {
		return fmt.Sprintf("%s: %d %s", e.Request, e.Status, e.Code)
	}
	return fmt.Sprintf("%s: %s (%d)", e.Request, e.Message, e.Status)
}

// Is reports which of the package's errors this error is.
func (e *Error) Is(target error) bool { return target == e.class() }

func (e *Error) class() error {
	switch {
	case e.Status == http.StatusNotFound:
		return ErrNotFound
	case e.Status == http.StatusConflict:
		return ErrConflict
	case e.Status == http.StatusUnprocessableEntity && e.Code == v1.CodeInsufficientStorage:
		return ErrInsufficient
	case e.Status == http.StatusUnauthorized, e.Status == http.StatusForbidden:
		return ErrUnauthorized
	case e.Status == http.StatusServiceUnavailable, e.Status == http.StatusTooManyRequests:
		return ErrUnavailable
	case e.Status >= 400 && e.Status < 500:
		return ErrInvalid
	}
	return ErrUnknown
}

// Unreachable is the error of a call that got no answer, or an answer that could not be read.
type Unreachable struct {
	Request string // method and URL
	Err     error
}

// Error returns the request and the cause.
func (u *Unreachable) Error() string { return fmt.Sprintf("%s: %v", u.Request, u.Err) }

// Unwrap returns the cause, so that callers can distinguish a deadline from a refused connection.
func (u *Unreachable) Unwrap() error { return u.Err }

// Is reports that the outcome is unknown.
func (u *Unreachable) Is(target error) bool { return target == ErrUnknown }
