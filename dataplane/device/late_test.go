package device

import (
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd/memory"
)

// lateBackend leaves each read in a disk that hangs, and answers it from elsewhere.
type lateBackend struct {
	*memory.Backend
	answers chan struct{} // closed when the disk answers
}

func (b lateBackend) ReadAt(context.Context, []byte, int64) error {
	<-b.answers
	return unix.EIO
}

func (b lateBackend) ReadLate(ctx context.Context, p []byte, off int64, elsewhere func([]byte, error)) (bool, error) {
	got := make([]byte, len(p))
	elsewhere(got, b.Backend.ReadAt(ctx, got, off))
	<-b.answers
	return true, nil
}

// A user of the device gets the data that was read elsewhere while the disk hangs.
func TestAReadOfADeviceDoesNotWaitForADiskThatHangs(t *testing.T) {
	needDevices(t)
	const size = 4 << 20
	m := memory.New(size)
	page := alignedPage()
	copy(page, pattern(1, len(page)))
	require.NoError(t, m.WriteAt(t.Context(), page, 4096, false))
	b := lateBackend{m, make(chan struct{})}
	f := local(t.TempDir())
	path, err := f.Start(t.Context(), "vol-1", size, b)
	require.NoError(t, err)
	defer func() { assert.NoError(t, f.Stop(context.Background())) }()
	defer close(b.answers)
	user, err := os.OpenFile(path, os.O_RDWR|unix.O_DIRECT, 0)
	require.NoError(t, err)
	defer user.Close()
	got := alignedPage()
	_, err = user.ReadAt(got, 4096)
	require.NoError(t, err)
	assert.Equal(t, page, got)
}
