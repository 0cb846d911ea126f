package share

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/internal/testutil/mountns"
)

// newLibrary builds the library as in the image.
func newLibrary(t *testing.T) string {
	t.Helper()
	mountns.Needs(t, "gcc")
	library := filepath.Join(t.TempDir(), "ganesha-wake.so")
	run(t, "gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", library, "ganesha/wake/wake.c")
	return library
}

// beReturning is a client of NFSv4.1 that registers and reports that it has reclaimed all its state. Its record stays.
func beReturning(name string) error {
	s, err := newSession(name)
	if err != nil {
		return err
	}
	return s.reclaimComplete()
}

// TestTheGracePeriodEndsWhenAllClientsAreBack: without help Ganesha checks 10 s after its start. Here it checks as soon
// as the last client has reclaimed its state. While one client is not back, the grace period continues.
func TestTheGracePeriodEndsWhenAllClientsAreBack(t *testing.T) {
	if !own(t) {
		return
	}
	library := newLibrary(t)
	r := startRole(t, t.TempDir(), loopDevice(t, newImage(t, 64<<20)), func(o *Options) {
		o.Lease, o.Grace, o.WakeLibrary = 60*time.Second, 60*time.Second, library
	})
	r.await(sayServed, 1)
	r.await(sayGraceOver, 1)
	r.is(returningEnv, "one")
	r.is(returningEnv, "two")
	require.NoError(t, syscall.Kill(r.ganesha(), syscall.SIGKILL))
	r.await(sayServed, 2)
	r.is(returningEnv, "one")
	time.Sleep(time.Second) // there is no event to wait for
	assert.Equal(t, 1, strings.Count(r.out.String(), sayGraceOver), "not before the second one is back")
	r.is(returningEnv, "two")
	const soon = 4 * time.Second
	assert.Eventually(t, func() bool { return strings.Count(r.out.String(), sayGraceOver) == 2 }, soon, 10*time.Millisecond)
	assert.NotContains(t, r.out.String(), "cannot be made to check")
	r.terminate()
}
