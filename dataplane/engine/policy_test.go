package engine

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
)

func TestClassify(t *testing.T) {
	for _, tc := range []struct {
		name string
		err  error
		want membership.Result
		kind kind
	}{
		{"no error → stored", nil, membership.Stored, kindWrite},
		{"a full file system → no space", &nbd.Error{Errno: nbd.ENOSPC, Msg: "disk full"}, membership.NoSpace, kindWrite},
		{"a wrapped errno → no space", fmt.Errorf("write: %w", syscall.ENOSPC), membership.NoSpace, kindWrite},
		{"an operation that is not offered → unsupported", nbd.ENOTSUP, membership.Unsupported, kindWrite},
		{"an I/O error → broken", nbd.EIO, membership.Broken, kindWrite},
		{"shut down, perhaps fenced → broken", nbd.ESHUTDOWN, membership.Broken, kindWrite},
		{"fate unknown → broken, for it may or may not have the change", nbd.ErrUnknownOutcome, membership.Broken, kindWrite},
		{"fate unknown, though no space is mentioned → broken", fmt.Errorf("%w: %w", nbd.ErrUnknownOutcome, nbd.ENOSPC), membership.Broken, kindWrite},
		{"never sent → broken, for others may have it", nbd.ErrNotSent, membership.Broken, kindWrite},
		{"refused as invalid, which was checked before → broken", nbd.EINVAL, membership.Broken, kindWrite},
		{"a context that ended → broken", context.Canceled, membership.Broken, kindWrite},
		{"an error of no kind → broken", errors.New("?"), membership.Broken, kindWrite},
		{"a flush that lacks space → broken, for what it was about is not known", nbd.ENOSPC, membership.Broken, kindFlush},
		{"a flush that is done → stored", nil, membership.Stored, kindFlush},
	} {
		t.Run(tc.name, func(t *testing.T) {
			assert.Equal(t, tc.want, classify(tc.kind, tc.err))
		})
	}
}

func TestIsFenced(t *testing.T) {
	for _, tc := range []struct {
		name string
		err  error
		want bool
	}{
		{"the error itself → fenced", fmt.Errorf("write: %w", ErrFenced), true},
		{"its text over the wire → fenced", &nbd.Error{Errno: nbd.ESHUTDOWN, Msg: "replica r: fenced by generation 7"}, true},
		{"shut down for another reason → not fenced", &nbd.Error{Errno: nbd.ESHUTDOWN, Msg: "replica fenced-1: closed"}, false},
		{"the text with another number → not fenced", &nbd.Error{Errno: nbd.EIO, Msg: "replica r: fenced"}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			assert.Equal(t, tc.want, isFenced(tc.err))
		})
	}
}
