package nbd

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestValidate(t *testing.T) {
	normal := limits{size: 1 << 20, blockMin: 512, maxPayload: 64 << 10, structured: true, blockStatus: true}
	with := func(f func(*limits)) limits { l := normal; f(&l); return l }
	readOnly := with(func(l *limits) { l.readOnly = true })
	simple := with(func(l *limits) { l.structured, l.blockStatus = false, false })
	noStatus := with(func(l *limits) { l.blockStatus = false })
	anyByte := with(func(l *limits) { l.blockMin = 1 })
	const ok = Errno(0)
	for _, c := range []struct {
		name string
		r    request
		l    limits
		want Errno
	}{
		{"read inside → served", request{Type: cmdRead, Offset: 512, Length: 512}, normal, ok},
		{"read up to the end → served", request{Type: cmdRead, Offset: 1<<20 - 512, Length: 512}, normal, ok},
		{"read over the end → EINVAL", request{Type: cmdRead, Offset: 1<<20 - 512, Length: 1024}, normal, EINVAL},
		{"read from far beyond, where sums wrap → EINVAL", request{Type: cmdRead, Offset: 1<<64 - 512, Length: 1024}, normal, EINVAL},
		{"read of nothing → EINVAL", request{Type: cmdRead}, normal, EINVAL},
		{"read as large as allowed → served", request{Type: cmdRead, Length: 64 << 10}, normal, ok},
		{"read larger than allowed → EINVAL", request{Type: cmdRead, Length: 64<<10 + 512}, normal, EINVAL},
		{"read not to be fragmented → served", request{Type: cmdRead, Flags: cmdFlagDF, Length: 512}, normal, ok},
		{"read not to be fragmented, simple replies → EINVAL", request{Type: cmdRead, Flags: cmdFlagDF, Length: 512}, simple, EINVAL},
		{"read with FUA, which says nothing → served", request{Type: cmdRead, Flags: cmdFlagFUA, Length: 512}, normal, ok},
		{"read with no-hole → EINVAL", request{Type: cmdRead, Flags: cmdFlagNoHole, Length: 512}, normal, EINVAL},
		{"read with a flag nobody knows → EINVAL", request{Type: cmdRead, Flags: 1 << 15, Length: 512}, normal, EINVAL},
		{"read at an odd offset → EINVAL", request{Type: cmdRead, Offset: 1, Length: 512}, normal, EINVAL},
		{"read of an odd length → EINVAL", request{Type: cmdRead, Length: 513}, normal, EINVAL},
		{"read of an odd range, blocks of one byte → served", request{Type: cmdRead, Offset: 1, Length: 513}, anyByte, ok},
		{"write inside → served", request{Type: cmdWrite, Length: 512}, normal, ok},
		{"write with FUA → served", request{Type: cmdWrite, Flags: cmdFlagFUA, Length: 512}, normal, ok},
		{"write over the end → ENOSPC", request{Type: cmdWrite, Offset: 1 << 20, Length: 512}, normal, ENOSPC},
		{"write to a read-only export → EPERM", request{Type: cmdWrite, Length: 512}, readOnly, EPERM},
		{"write larger than allowed → EINVAL", request{Type: cmdWrite, Length: 128 << 10}, normal, EINVAL},
		{"flush → served", request{Type: cmdFlush}, normal, ok},
		{"flush of a read-only export → served", request{Type: cmdFlush}, readOnly, ok},
		{"flush with a range → EINVAL", request{Type: cmdFlush, Length: 512}, normal, EINVAL},
		{"trim of everything, larger than any payload → served", request{Type: cmdTrim, Length: 1 << 20}, normal, ok},
		{"trim over the end → EINVAL", request{Type: cmdTrim, Offset: 512, Length: 1 << 20}, normal, EINVAL},
		{"trim of a read-only export → EPERM", request{Type: cmdTrim, Length: 512}, readOnly, EPERM},
		{"zero with no-hole and FUA → served", request{Type: cmdWriteZeroes, Flags: cmdFlagNoHole | cmdFlagFUA, Length: 1 << 20}, normal, ok},
		{"zero over the end → ENOSPC", request{Type: cmdWriteZeroes, Offset: 512, Length: 1 << 20}, normal, ENOSPC},
		{"zero of a read-only export → EPERM", request{Type: cmdWriteZeroes, Length: 512}, readOnly, EPERM},
		{"fast zero → ENOTSUP", request{Type: cmdWriteZeroes, Flags: cmdFlagFastZero, Length: 512}, normal, ENOTSUP},
		{"block status → served", request{Type: cmdBlockStatus, Flags: cmdFlagReqOne, Length: 1 << 20}, normal, ok},
		{"block status without the context → EINVAL", request{Type: cmdBlockStatus, Length: 512}, noStatus, EINVAL},
		{"cache → EINVAL", request{Type: cmdCache, Length: 512}, normal, EINVAL},
		{"a command nobody knows → EINVAL", request{Type: 99, Length: 512}, normal, EINVAL},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := ok
			if err := validate(c.r, c.l); err != nil {
				got = err.Errno
			}
			assert.Equal(t, c.want, got)
		})
	}
}
