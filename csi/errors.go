package csi

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
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
