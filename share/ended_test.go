package share

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/share/ganesha"
	"github.com/longhorn-lep/longhorn-manager/share/nfsclient"
)

// sayEnded is what Ganesha says of a client that has ended, or is over its lease.
const sayEnded = "24/11/2026 14:23:09 : epoch 6b059db8 : vm : nfs-ganesha-22[reaper] fs_rm_clid_impl :CLIENT ID :EVENT :Failed to remove client recovery dir (/::ffff:127.0.0.1-(%d:%s)), errno: No such file or directory (2)\n"

// beClient is an NFSv4.0 client that makes itself known, boots anew, which shows in its verifier, and then renews its lease for a while. Another
// client would have it taken for one that has ended.
func beClient(name string, d time.Duration) error {
	p := nfsclient.NewProber(2049, patience)
	const opRenew, opSetClientID, opConfirm = 30, 35, 36
	call := func(op nfsclient.Words) (*nfsclient.Reader, error) {
		r, err := p.Compound(context.Background(), 0, 1, op)
		if err == nil {
			r.Word() // the operation
			r.Word() // its status
		}
		return r, err
	}
	var id []byte
	for boot := range uint32(2) {
		r, err := call(nfsclient.Words{}.Put(opSetClientID, 0, boot).Opaque(name).Put(0x40000000).Opaque("tcp").Opaque("127.0.0.1.0.0").Put(1))
		if err != nil {
			return fmt.Errorf("boot %d: %w", boot, err)
		}
		confirm := nfsclient.Words{}.Put(opConfirm).Add(r.Rest()[:16])
		id = r.Rest()[:8]
		if _, err := call(confirm); err != nil {
			return fmt.Errorf("boot %d, confirming: %w", boot, err)
		}
	}
	// Another one's address reads like a line of the server's own, which says that the first has ended.
	forged := "127.0.0.1.0.0\n" + fmt.Sprintf(sayEnded, len(name), name)
	_, err := call(nfsclient.Words{}.Put(opSetClientID, 0, 0).Opaque("forger").Put(0x40000000).Opaque("tcp").Opaque(forged).Put(1))
	if refused := nfsclient.StatusError(0); err != nil && !errors.As(err, &refused) {
		return fmt.Errorf("forging: %w", err)
	}
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
		if _, err := call(nfsclient.Words{}.Put(opRenew, binary.BigEndian.Uint32(id), binary.BigEndian.Uint32(id[4:]))); err != nil {
			return fmt.Errorf("renewing: %w", err)
		}
	}
	return nil
}

// TestTheServerDoesNotWaitForClientsThatHaveEnded: those of a real server.
func TestTheServerDoesNotWaitForClientsThatHaveEnded(t *testing.T) {
	if !own(t) {
		return
	}
	r := startRole(t, t.TempDir(), loopDevice(t, newImage(t, 64<<20)), nil)
	r.await(sayServed, 1)
	records := func() []string {
		found, err := filepath.Glob(filepath.Join(r.o.RuntimeDirectory, "recovery", ganesha.RecordsName, "node0.*", "*"))
		require.NoError(t, err)
		return found
	}
	self, err := os.Executable()
	require.NoError(t, err)
	out, err := r.inside(clientEnv+"=stays", self, "-test.run=^$")
	require.NoError(t, err, out)
	require.Len(t, records(), 1, "a client that booted anew and goes on has its record")
	require.Eventually(t, func() bool { return len(records()) == 0 }, patience, 100*time.Millisecond, "its lease is over, and its record stays")
	assert.NotRegexp(t, ":CLIENT ID :(DEBUG|EVENT)", r.out.String(), "these lines are for this process alone")
	r.terminate()
}
