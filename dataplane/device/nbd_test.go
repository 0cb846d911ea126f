package device

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd/memory"
)

// A removal is writing back the last data when the server exits. It waits for the successor, which gets the data again,
// and is then abandoned.
func TestARemovalOfAnNBDDeviceWhoseServerEndsWaitsForTheSuccessor(t *testing.T) {
	if os.Getenv(nbdEnv) == "" {
		t.Skip("needs the kernel's NBD client")
	}
	const size = 4 << 20
	m := memory.New(size)
	g := newGate(memory.New(size)) // data that is written there is lost
	keeper := newKeeper(t, t.TempDir())
	f := frontend(keeper.Session(), 1)
	path, err := f.Start(t.Context(), "vol-1", size, g)
	require.NoError(t, err)
	want := pattern(3, 8192)
	user, err := os.OpenFile(path, os.O_RDWR, 0) // the last user that closes it would write it back
	require.NoError(t, err)
	defer user.Close()
	_, err = user.Write(want)
	require.NoError(t, err)
	stopped := make(chan error)
	go func() { stopped <- f.Stop(t.Context()) }()
	<-g.arrived
	keeper.ServerEnded()
	close(g.open)
	next := successor(keeper, 2)
	_, err = next.Start(t.Context(), "vol-1", size, m)
	require.NoError(t, err)
	assert.ErrorIs(t, <-stopped, ErrEnded, "the removal")
	require.NoError(t, user.Close())
	assert.NoError(t, next.Stop(t.Context()))
	got := make([]byte, len(want))
	require.NoError(t, m.ReadAt(t.Context(), got, 0))
	assert.True(t, bytes.Equal(got, want), "the last data is lost")
}
