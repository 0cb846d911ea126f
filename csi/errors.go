package csi

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/longhorn-lep/longhorn-manager/api/client"
)

// The errors with which a VolumeService refuses. Any other error means that the result is unknown: the request may or
// may not have been carried out.
var (
	// ErrNotFound: no volume, or no snapshot, has that name.
	ErrNotFound = errors.New("not found")
	// ErrConflict: the request contradicts the present state, or another request overtook it.
	ErrConflict = errors.New("conflict")
	// ErrInvalid: the request breaks a rule; it can never succeed unchanged.
	ErrInvalid = errors.New("invalid")
	// ErrInsufficientStorage: no set of disks has space for all replicas. Nothing was created.
	ErrInsufficientStorage = errors.New("insufficient storage")
)

// toStatus gives an error the code on which its caller acts. An error that has a code keeps it. If an error may mean
// "perhaps it was done", it becomes Unavailable, which callers must treat as unknown: they ask again, or undo.
func toStatus(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.Error(codeOf(err), err.Error())
}

func codeOf(err error) codes.Code {
	var rangeErr errOutOfRange
	switch {
	case errors.As(err, &rangeErr):
		return codes.OutOfRange
	case errors.Is(err, ErrNotFound):
		return codes.NotFound
	case errors.Is(err, ErrInvalid):
		return codes.InvalidArgument
	case errors.Is(err, ErrInsufficientStorage):
		return codes.ResourceExhausted
	case errors.Is(err, ErrConflict):
		return codes.Aborted
	case errors.Is(err, context.DeadlineExceeded):
		return codes.DeadlineExceeded
	case errors.Is(err, context.Canceled):
		return codes.Canceled
	}
	return codes.Unavailable
}

// invalid answers InvalidArgument, or OutOfRange for an impossible size.
func invalid(err error) error {
	var rangeErr errOutOfRange
	if errors.As(err, &rangeErr) {
		return status.Error(codes.OutOfRange, err.Error())
	}
	return status.Error(codes.InvalidArgument, err.Error())
}

// missing answers InvalidArgument for a required field that is missing.
func missing(field string) error {
	return status.Errorf(codes.InvalidArgument, "%s is missing", field)
}

// busy answers Aborted while another call works on the volume.
func busy(volume string) error {
	return status.Errorf(codes.Aborted, "volume %s: another operation on this volume is in progress", volume)
}

// serviceError is a failure of the REST client, classified by an error of VolumeService.
type serviceError struct {
	class, cause error
	text         string
}

func (e *serviceError) Error() string   { return e.text }
func (e *serviceError) Unwrap() []error { return []error{e.class, e.cause} }

// classify translates the client's errors. Errors that it cannot classify stay unchanged: unknown.
func classify(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	var refusal *client.Error
	if errors.As(err, &refusal) && refusal.Message != "" {
		text = withDetail(refusal.Message, refusal.Detail)
	}
	for theirs, ours := range map[error]error{
		client.ErrNotFound:     ErrNotFound,
		client.ErrConflict:     ErrConflict,
		client.ErrInvalid:      ErrInvalid,
		client.ErrInsufficient: ErrInsufficientStorage,
	} {
		if errors.Is(err, theirs) {
			return &serviceError{class: ours, cause: err, text: text}
		}
	}
	return err
}

// maxDetails is how many lines of a refusal's detail become part of a message: an Event shows them in one line.
const maxDetails = 3

// withDetail is a refusal in one line. It omits lines of the detail that the message already contains.
func withDetail(message, detail string) string {
	var lines []string
	for line := range strings.Lines(detail) {
		if line = strings.TrimSpace(line); line != "" && !strings.Contains(message, line) {
			lines = append(lines, line)
		}
	}
	if more := len(lines) - maxDetails; more > 0 {
		lines = append(lines[:maxDetails], fmt.Sprintf("and %d more", more))
	}
	if len(lines) == 0 {
		return message
	}
	return message + ": " + strings.Join(lines, "; ")
}

// withAction prefixes an error with an action, unless the error is a refusal of the manager that already contains all
// these names.
func withAction(err error, action string, names ...string) error {
	var refusal *serviceError
	isNamed := errors.As(err, &refusal)
	for _, name := range names {
		isNamed = isNamed && strings.Contains(refusal.text, name)
	}
	if isNamed {
		return err
	}
	return fmt.Errorf("%s: %w", action, err)
}

// withActionIf is withAction for an error that may be nil.
func withActionIf(err error, action string, names ...string) error {
	if err == nil {
		return nil
	}
	return withAction(err, action, names...)
}
