package share

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/share/ganesha"
)

// longGrace gives a server a grace period that ends only with its last client.
func longGrace(t *testing.T) func(*Options) {
	library := newLibrary(t)
	return func(o *Options) { o.Lease, o.Grace, o.WakeLibrary = 60*time.Second, 60*time.Second, library }
}

// TestACloneDoesNotWaitForClientsOfItsSource: the server of a volume with another UID finds none of the records. The
// server of the same volume finds them.
func TestACloneDoesNotWaitForClientsOfItsSource(t *testing.T) {
	if !own(t) {
		return
	}
	slow := longGrace(t)
	as := func(uid string) func(*Options) {
		return func(o *Options) {
			slow(o)
			o.VolumeUID = uid
		}
	}
	device := loopDevice(t, newImage(t, 64<<20))
	source := startRole(t, t.TempDir(), device, as("uid-of-the-source"))
	source.await(sayServed, 1)
	source.await(sayGraceOver, 1)
	source.is(returningEnv, "one")
	source.terminate()

	again := startRole(t, t.TempDir(), device, as("uid-of-the-source"))
	again.await(sayServed, 1)
	again.awaitClients(1)
	again.is(returningEnv, "one")
	again.await(sayGraceOver, 1)
	again.terminate()

	clone := startRole(t, t.TempDir(), device, as("uid-of-the-clone"))
	clone.await("The records of clients came from the volume of which this volume is a copy", 1)
	clone.await(sayServed, 1)
	clone.await(sayGraceOver, 1)
	clone.is(returningEnv, "one")
	assert.NotContains(t, clone.out.String(), sayNoRecords, "it is no loss of this volume's clients")
	clone.terminate()

	restarted := startRole(t, t.TempDir(), device, as("uid-of-the-clone"))
	restarted.await(sayServed, 1)
	restarted.awaitClients(1) // the clone's own client
	restarted.terminate()
	wantGrowingEpochs(t, 4, source.out.String()+again.out.String()+clone.out.String()+restarted.out.String())
}

// TestARecordThatTheServerCannotReadIsALoss: the server does not wait for that client.
func TestARecordThatTheServerCannotReadIsALoss(t *testing.T) {
	if !own(t) {
		return
	}
	slow, device, dir := longGrace(t), loopDevice(t, newImage(t, 64<<20)), t.TempDir()
	const lost = "Some clients have lost their open files and locks"
	r := startRole(t, dir, device, slow)
	r.await(sayServed, 1)
	r.await(sayGraceOver, 1)
	long := "Linux NFSv4.2 " + strings.Repeat("identifier", 60) // its record has several parts
	clients := []string{"one", "two/plugin", long}
	for _, name := range clients {
		r.is(returningEnv, name)
	}
	require.NoError(t, syscall.Kill(r.ganesha(), syscall.SIGKILL))
	r.await(sayServed, 2)
	r.awaitClients(3)
	for _, name := range clients {
		r.is(returningEnv, name)
	}
	r.await(sayGraceOver, 2)
	assert.NotContains(t, r.out.String(), lost, "all were read")

	current := filepath.Join(r.o.RuntimeDirectory, "recovery", ganesha.RecordsName, "node0")
	records, err := filepath.Glob(filepath.Join(current, "*-(3:one)"))
	require.NoError(t, err)
	require.Len(t, records, 1)
	require.NoError(t, os.Rename(records[0], filepath.Join(filepath.Dir(records[0]), "damaged")))
	r.terminate()

	next := startRole(t, t.TempDir(), device, slow)
	next.await(lost, 1)
	next.await(sayServed, 1)
	assert.Contains(t, next.out.String(), "the NFS server has read the records of only 2 of 3 clients")
	self, err := os.Executable()
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		said, err := next.inside(askEnv+"="+next.o.HealthListen, self, "-test.run=^$")
		return err == nil && said == "RecoveryDataMissing the NFS server has read the records of only 2 of 3 clients"
	}, patience, 100*time.Millisecond, "the leader is not told")
	next.terminate()
}

// TestADirectoryOfRecordsThatCannotBeReadStopsTheStart: the start continues only if something else is in place of the
// directory, or if there is no space.
func TestADirectoryOfRecordsThatCannotBeReadStopsTheStart(t *testing.T) {
	for err, want := range map[error]bool{
		unix.EIO: true, unix.EUCLEAN: true, unix.EBADMSG: true, unix.ENODATA: true,
		unix.ENOTDIR: false, unix.ELOOP: false, unix.ENOSPC: false, unix.EDQUOT: false, nil: false,
	} {
		assert.Equal(t, want, isUnreadable(err), "%v", err)
	}
}

func TestATextThatIsNoUIDIsNotCompared(t *testing.T) {
	for text, want := range map[string]string{"": "", "a/b": "", "0f4a1c0e-8f2e-4c59-9b1d-3c1f6d2f7a10": "0f4a1c0e-8f2e-4c59-9b1d-3c1f6d2f7a10"} {
		o := valid()
		o.VolumeUID = text
		got, err := o.normalize()
		require.NoError(t, err, "the share is served all the same")
		assert.Equal(t, want, got.VolumeUID)
	}
}
