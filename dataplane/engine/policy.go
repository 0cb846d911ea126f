package engine

import (
	"errors"
	"strings"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
)

// fencedText is in the text of a replica's error if a higher generation shut out the session. It is used where the
// error itself was lost on the wire.
const fencedText = ": fenced"

// isFenced reports whether an error means that a higher generation was admitted.
func isFenced(err error) bool {
	if errors.Is(err, ErrFenced) {
		return true
	}
	var e *nbd.Error
	return errors.As(err, &e) && e.Errno == nbd.ESHUTDOWN && strings.Contains(e.Msg, fencedText)
}

// classify converts a member's error to a result. A flush has no harmless failures, because it is unknown which earlier
// change could not be made durable.
func classify(k kind, err error) membership.Result {
	switch {
	case err == nil:
		return membership.Stored
	case k == kindFlush:
		return membership.Broken
	case errors.Is(err, nbd.ErrUnknownOutcome), errors.Is(err, nbd.ErrNotSent):
		return membership.Broken
	case errors.Is(err, nbd.ENOSPC):
		return membership.NoSpace
	case errors.Is(err, nbd.ENOTSUP):
		return membership.Unsupported
	}
	return membership.Broken
}

// errorOfResult returns the error of a member that did not store a change.
func errorOfResult(r membership.Result) error {
	switch r {
	case membership.NoSpace:
		return nbd.ENOSPC
	case membership.Unsupported:
		return nbd.ENOTSUP
	}
	return nbd.EIO
}

// answerError converts a judgement's answer to an error.
func answerError(a membership.Answer) error {
	switch a {
	case membership.Acknowledge, membership.WaitForEpoch:
		return nil
	case membership.RefuseNoSpace:
		return nbd.ENOSPC
	case membership.RefuseUnsupported:
		return nbd.ENOTSUP
	}
	return nbd.EIO
}
