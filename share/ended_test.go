package share

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/share/ganesha"
	"github.com/longhorn-lep/longhorn-manager/share/nfsclient"
)

// beClient is an NFSv4.0 client that registers with the server, reboots, which its verifier shows, and renews its
// lease.
func beClient(name string) error {
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
	if _, err := call(nfsclient.Words{}.Put(opRenew, binary.BigEndian.Uint32(id), binary.BigEndian.Uint32(id[4:]))); err != nil {
		return fmt.Errorf("renewing: %w", err)
	}
	return nil
}

// TestTheServerDoesNotWaitForClientsThatHaveEnded: a real server removes the record of a client that unregisters, and
// of a client with an expired lease. Ganesha 4.3 does not.
func TestTheServerDoesNotWaitForClientsThatHaveEnded(t *testing.T) {
	if !own(t) {
		return
	}
	r := startRole(t, t.TempDir(), loopDevice(t, newImage(t, 64<<20)), nil)
	r.await("Ganesha Version", 1)
	if strings.Contains(r.out.String(), "Ganesha Version "+ganesha.EarlierVersion) {
		r.await(sayServed, 1)
		r.terminate()
		t.Skip("needs the image's server (LONGHORN_IMAGE_ROOT)")
	}
	r.await(sayServed, 1)
	r.await(sayGraceOver, 1)
	records := func() []string {
		found, err := filepath.Glob(filepath.Join(r.o.RuntimeDirectory, "recovery", ganesha.RecordsName, "node0.*", "*"))
		require.NoError(t, err)
		return found
	}
	r.is(clientEnv, "stays")
	require.Len(t, records(), 1, "a client that booted anew has its record")
	r.is(leavingEnv, "leaves")
	require.Len(t, records(), 1, "one that has ended has none")
	require.Eventually(t, func() bool { return len(records()) == 0 }, patience, 100*time.Millisecond, "its lease is over, and its record stays")
	assert.NotRegexp(t, ":CLIENT ID :(DEBUG|EVENT)", r.out.String(), "these lines are for this process alone")
	r.terminate()
}

// is runs this program as a client of the share.
func (r *role) is(env, task string) {
	r.t.Helper()
	self, err := os.Executable()
	require.NoError(r.t, err)
	out, err := r.inside(env+"="+task, self, "-test.run=^$")
	require.NoError(r.t, err, out)
}

// beLeaving is a client of NFSv4.1 that registers and then unregisters.
func beLeaving(name string) error {
	const opDestroySession, opDestroyClientID = 44, 57
	s, err := newSession(name)
	if err != nil {
		return err
	}
	if _, err := s.do(1, nfsclient.Words{}.Put(opDestroySession).Add(s.id)); err != nil {
		return fmt.Errorf("ending the session: %w", err)
	}
	_, err = s.p.Compound(context.Background(), 1, 1, nfsclient.Words{}.Put(opDestroyClientID).Add(s.client))
	return err
}
