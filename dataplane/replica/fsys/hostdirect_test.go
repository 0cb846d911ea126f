package fsys

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"golang.org/x/sys/unix"
)

func TestDirectWritesByTheCacheAreReported(t *testing.T) {
	for _, tc := range []struct {
		name string
		file unix.Statx_t
		want bool
	}{
		{"aligned to sectors", unix.Statx_t{Mask: unix.STATX_DIOALIGN, Dio_mem_align: 512, Dio_offset_align: 512}, true},
		{"no alignment works", unix.Statx_t{Mask: unix.STATX_DIOALIGN}, false},
		{"encrypted, and passes the cache", unix.Statx_t{
			Mask: unix.STATX_DIOALIGN, Attributes: unix.STATX_ATTR_ENCRYPTED, Dio_mem_align: 4096, Dio_offset_align: 4096,
		}, true},
		{"not told", unix.Statx_t{}, true},
		{"not told, encrypted", unix.Statx_t{Attributes: unix.STATX_ATTR_ENCRYPTED}, false},
	} {
		t.Run(tc.name, func(t *testing.T) { assert.Equal(t, tc.want, isDirect(tc.file)) })
	}
}
