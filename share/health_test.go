package share

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

func TestHealthService(t *testing.T) {
	h, err := serveHealth(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	defer h.close()
	conn, err := grpc.NewClient(h.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	status := func() healthpb.HealthCheckResponse_ServingStatus {
		r, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
		require.NoError(t, err)
		return r.GetStatus()
	}
	assert.Equal(t, healthpb.HealthCheckResponse_NOT_SERVING, status())
	h.set(true)
	assert.Equal(t, healthpb.HealthCheckResponse_SERVING, status())
	h.set(false)
	assert.Equal(t, healthpb.HealthCheckResponse_NOT_SERVING, status())
	_, err = serveHealth(t.Context(), h.address)
	assert.Error(t, err, "the port is taken")
}

func TestWaitingForADevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger, hook := logtest.NewNullLogger()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute+time.Second)
		defer cancel()
		err := awaitDevice(ctx, filepath.Join(t.TempDir(), "none"), false, logrus.NewEntry(logger))
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Len(t, hook.AllEntries(), 4, "a message at the start and each minute")
	})
	err := awaitDevice(t.Context(), t.TempDir(), false, quiet())
	assert.ErrorIs(t, err, ErrWrongDevice)
}

// TestOrphans: a process that becomes a child of this process because its parent died is reaped in the second round. A
// child for which this process waits is not.
func TestOrphans(t *testing.T) {
	dead := exec.Command("true")
	require.NoError(t, dead.Start())
	pid := dead.Process.Pid
	require.Eventually(t, func() bool { return isZombie(pid) }, patience, 10*time.Millisecond)
	if _, err := os.Stat("/proc/thread-self/children"); err != nil {
		t.Skip("needs a kernel that lists the children of a process")
	}
	o := &orphans{}
	o.reap()
	assert.True(t, isZombie(pid), "at the first look")
	o.reap()
	assert.False(t, isZombie(pid), "at the second look")
	_ = dead.Wait() // after the reaping
}
