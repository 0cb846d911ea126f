package replica

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/mountns"
)

// A real kernel reports the failure to the write-out. Then it reports nothing to a flush, which uses the same opening
// of the data.
func TestARealKernelReportsALossOnlyToTheWriteOutAndTheFlushFails(t *testing.T) {
	if !mountns.Own(t) {
		return
	}
	for _, tc := range []struct {
		name  string
		flush func(r *Replica, s *Session) (writeOut, flush error)
	}{
		{"the flush comes after the write-out", func(r *Replica, s *Session) (error, error) {
			writeOut := r.out.File.WriteBack()
			assert.NoError(t, r.out.File.Datasync(), "this kernel reports a failure more than once to an opening, so this test shows nothing")
			return writeOut, s.Flush(t.Context())
		}},
		{"the flush is under way with the write-out", func(r *Replica, s *Session) (error, error) {
			writeOut := make(chan error)
			go func() { writeOut <- r.out.File.WriteBack() }()
			flush := s.Flush(t.Context())
			return <-writeOut, flush
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			image, point := badDisk(t)
			dir, spec := filepath.Join(point, "r"), testSpec("uid-1", 64*mib)
			require.NoError(t, Create(fsys.Host{}, dir, spec))
			r := openReplica(t, fsys.Host{}, dir, spec, testBoot)
			s := admit(t, r, 1, "s")
			markAll(t, s)
			everyPiece(func(off int64) {
				require.NoError(t, s.WriteAt(t.Context(), bytes.Repeat([]byte{7}, pieceBytes), off, false))
			})
			over := badMoment(t, image, badFrom)
			writeOut, flush := tc.flush(r, s)
			over()
			assert.Error(t, flush, "acknowledged without the bytes that the disk does not have; the write-out was told: %v", writeOut)
			assert.Error(t, s.Flush(t.Context()), "the next flush")
			_, err := s.Control(t.Context(), membership.OpClearIntents, regionsPayload(t, 0))
			assert.Error(t, err, "the mark of what is lost was cleared")
			assert.Contains(t, r.intents.marked(), int64(0))
			assert.False(t, r.State().CacheKept)
		})
	}
}
