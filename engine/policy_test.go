package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"

	"github.com/longhorn-lep/longhorn-manager/nbd"
)

func TestClassify(t *testing.T) {
	for _, tc := range []struct {
		name string
		err  error
		want outcome
		kind kind
	}{
		{"no error → stored", nil, stored, kindWrite},
		{"a full file system → no space", &nbd.Error{Errno: nbd.ENOSPC, Msg: "disk full"}, noSpace, kindWrite},
		{"a wrapped errno → no space", fmt.Errorf("write: %w", syscall.ENOSPC), noSpace, kindWrite},
		{"an operation that is not offered → unsupported", nbd.ENOTSUP, unsupported, kindWrite},
		{"an I/O error → broken", nbd.EIO, broken, kindWrite},
		{"shut down, perhaps fenced → broken", nbd.ESHUTDOWN, broken, kindWrite},
		{"fate unknown → broken, for it may or may not have the change", nbd.ErrUnknownOutcome, broken, kindWrite},
		{"fate unknown, though no space is mentioned → broken", fmt.Errorf("%w: %w", nbd.ErrUnknownOutcome, nbd.ENOSPC), broken, kindWrite},
		{"never sent → broken, for others may have it", nbd.ErrNotSent, broken, kindWrite},
		{"refused as invalid, which was checked before → broken", nbd.EINVAL, broken, kindWrite},
		{"a context that ended → broken", context.Canceled, broken, kindWrite},
		{"an error of no kind → broken", errors.New("?"), broken, kindWrite},
		{"a flush that lacks space → broken, for what it was about is not known", nbd.ENOSPC, broken, kindFlush},
		{"a flush that is done → stored", nil, stored, kindFlush},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := classify(tc.kind, tc.err); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
}

func TestJudge(t *testing.T) {
	for _, tc := range []struct {
		name     string
		outcomes []outcome
		err      error
		failed   []int
		uneven   bool
	}{
		{"all stored → acknowledged", []outcome{stored, stored, stored}, nil, nil, false},
		{"the only one stored → acknowledged", []outcome{stored}, nil, nil, false},
		{"one broken → EIO, it has failed", []outcome{stored, broken, stored}, nbd.EIO, []int{1}, true},
		{"all broken → EIO, all have failed", []outcome{broken, broken}, nbd.EIO, []int{0, 1}, true},
		{"all full → ENOSPC, nobody has failed, the range stays marked", []outcome{noSpace, noSpace}, nbd.ENOSPC, nil, true},
		{"the only one full → ENOSPC", []outcome{noSpace}, nbd.ENOSPC, nil, true},
		{"one full while others stored it → EIO, it has failed", []outcome{stored, noSpace, stored}, nbd.EIO, []int{1}, true},
		{"one full, one broken → EIO, both lack it", []outcome{noSpace, broken, stored}, nbd.EIO, []int{0, 1}, true},
		{"all refuse the kind → ENOTSUP", []outcome{unsupported, unsupported}, nbd.ENOTSUP, nil, false},
		{"one refuses the kind → EIO, it has failed", []outcome{unsupported, stored}, nbd.EIO, []int{0}, true},
		{"full and refused → EIO, both have failed", []outcome{unsupported, noSpace}, nbd.EIO, []int{0, 1}, true},
		{"nobody asked → EIO, never acknowledged", nil, nbd.EIO, nil, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := judge(tc.outcomes)
			if !errors.Is(v.err, tc.err) || (v.err == nil) != (tc.err == nil) {
				t.Errorf("error %v, want %v", v.err, tc.err)
			}
			if !slices.Equal(v.failed, tc.failed) || v.uneven != tc.uneven {
				t.Errorf("failed %v, uneven %t; want %v, %t", v.failed, v.uneven, tc.failed, tc.uneven)
			}
		})
	}
}

// Every combination for up to three members: acknowledged exactly when all have stored.
func TestJudgeNeverAcknowledgesWithFewerCopies(t *testing.T) {
	kinds := []outcome{stored, noSpace, unsupported, broken}
	var try func(prefix []outcome)
	try = func(prefix []outcome) {
		if len(prefix) > 0 {
			all := !slices.ContainsFunc(prefix, func(o outcome) bool { return o != stored })
			if acknowledged := judge(prefix).err == nil; acknowledged != all {
				t.Errorf("%v: acknowledged %t", prefix, acknowledged)
			}
		}
		if len(prefix) < 3 {
			for _, k := range kinds {
				try(append(slices.Clone(prefix), k))
			}
		}
	}
	try(nil)
}
