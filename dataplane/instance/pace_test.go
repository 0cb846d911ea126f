package instance

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/replica"
)

// The replicas of one disk share one limit for the data that they have written and that is not on the disk. Another
// disk has another limit.
func TestTheReplicasOfADiskShareWhatMayBeUnwritten(t *testing.T) {
	const firstLimit = 64 // of a disk, in MiB, as docs/dataplane/FORMAT.md says
	for _, tc := range []struct {
		name      string
		neighbour string // name of the replica that has written enough to have a share
		room      int    // in MiB
		waits     bool   // with more than that
	}{
		{"a neighbour on the same disk has written → half of it for each", "vol-r-2", firstLimit / 2, true},
		{"a replica on another disk has written → all of it", "vol-r-3", firstLimit - 2, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n, f := hangingNode(t, patience)
			disks := map[string][2]string{"vol-r-1": {"/disk", diskUUID}, "vol-r-2": {"/disk", diskUUID}, "vol-r-3": {"/other", otherUUID}}
			sessions := map[string]*replica.Session{}
			for name, at := range disks {
				s := n.named(name, at[0], at[1])
				n.used(s)
				session, err := n.replicas.find(name).replica.Admit(t.Context(), 1, "one")
				require.NoError(t, err)
				defer func() { assert.NoError(t, session.Close()) }()
				for off := int64(0); off < testSize; off += mib { // mark everything: a frozen disk stores no mark
					require.NoError(t, session.WriteAt(t.Context(), make([]byte, 512), off, false))
				}
				require.NoError(t, session.Flush(t.Context()))
				sessions[name] = session
			}
			f.freeze("/disk")
			defer f.thaw() // before the sessions are closed
			require.NoError(t, sessions[tc.neighbour].WriteAt(t.Context(), make([]byte, 2*mib), 0, false))
			write := func(ctx context.Context, at int) error {
				return sessions["vol-r-1"].WriteAt(ctx, make([]byte, mib), int64(at)*mib, false)
			}
			for i := range tc.room {
				require.NoError(t, write(t.Context(), i))
			}
			if !tc.waits {
				return
			}
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			assert.ErrorIs(t, write(ctx, tc.room), context.DeadlineExceeded, "there is no more room, and the disk makes none")
		})
	}
}
