package share

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/share/firewall"
	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/boottime"
)

const (
	deadClient = "Linux NFSv4.2 id-dead/plugin-1"
	liveClient = "Linux NFSv4.2 id-live/plugin-2"
)

// TestTheServerDoesNotWaitForALostClient: one that died with the node of the former server. A server that starts again in the same pod waits for it,
// because it may have come back.
func TestTheServerDoesNotWaitForALostClient(t *testing.T) {
	if !own(t) {
		return
	}
	library := newLibrary(t)
	slow := func(o *Options) { o.Lease, o.Grace, o.WakeLibrary = 60*time.Second, 60*time.Second, library }
	image := newImage(t, 64<<20)
	former := startRole(t, t.TempDir(), loopDevice(t, image), slow)
	former.await(sayServed, 1)
	former.await(sayGraceOver, 1)
	former.is(returningEnv, deadClient)
	former.is(returningEnv, liveClient)
	former.terminate()

	file := filepath.Join(t.TempDir(), "verdict")
	t.Setenv(verdictEnv, file)
	device := loopDevice(t, image)
	var st unix.Stat_t
	require.NoError(t, unix.Stat(device, &st))
	require.NoError(t, os.WriteFile(file, []byte(fmt.Sprint("yes ", st.Rdev)), 0o600))
	r := startRole(t, t.TempDir(), device, func(o *Options) {
		slow(o)
		o.LostClients = types.LostClients{After: 7, IDs: []string{"id-dead", "id-live-not"}}
	})
	r.await("does not wait for clients of nodes that are down", 1)
	r.await(sayServed, 1)
	assert.Contains(t, r.out.String(), "clid count(1)", "one client is waited for")
	r.is(returningEnv, liveClient)
	r.await(sayGraceOver, 1)

	r.is(returningEnv, deadClient) // its node has booted
	require.NoError(t, syscall.Kill(r.ganesha(), syscall.SIGKILL))
	r.await(sayServed, 2)
	r.is(returningEnv, liveClient)
	assert.Contains(t, r.out.String(), "clid count(2)")
	assert.Equal(t, 1, strings.Count(r.out.String(), sayGraceOver), "it waits for the other one")
	r.is(returningEnv, deadClient)
	r.await(sayGraceOver, 2)
	r.terminate()
}

func TestWhenTheFormerServerIsMute(t *testing.T) {
	list := types.LostClients{After: 7, IDs: []string{"id"}}
	answered := func(a Answer) guard {
		first := make(chan heard, 1)
		first <- heard{a, boottime.Now()}
		return guard{first: first}
	}
	for name, tc := range map[string]struct {
		before Predecessor
		want   string
	}{
		"no member has heard a question for long":  {Predecessor{7, firewall.MuteAfter}, ""},
		"a moment is left, which it waits":         {Predecessor{7, firewall.MuteAfter - 10*time.Millisecond}, ""},
		"it is not known":                          {Predecessor{}, "not known"},
		"the list is about an earlier engine":      {Predecessor{8, time.Hour}, "the engine of generation 7, and generation 8 was before"},
		"the list is about a later engine, absurd": {Predecessor{6, time.Hour}, "the engine of generation 7, and generation 6 was before"},
	} {
		t.Run(name, func(t *testing.T) {
			began := boottime.Now()
			generation, err := formerIsMute(t.Context(), Options{LostClients: list}, answered(Answer{Generation: 9, Before: tc.before}))
			if tc.want != "" {
				require.ErrorContains(t, err, tc.want)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, int64(9), generation)
			assert.GreaterOrEqual(t, boottime.Now()-began+tc.before.Age, firewall.MuteAfter)
		})
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := formerIsMute(ctx, Options{LostClients: list}, answered(Answer{Generation: 9, Before: Predecessor{7, -time.Hour}}))
	assert.ErrorIs(t, err, context.Canceled)
	_, err = formerIsMute(ctx, Options{LostClients: list}, guard{})
	assert.ErrorIs(t, err, context.Canceled, "nothing can be asked")
}

// TestOnlyAConfirmedAnswerSaysWhoWasBefore: an answer that is neither yes nor "cannot tell" says nothing of the engine before.
func TestOnlyAConfirmedAnswerSaysWhoWasBefore(t *testing.T) {
	for v, want := range map[firewall.Verdict]int{
		firewall.Yes: 1, firewall.CannotTell: 1, firewall.No: 0, firewall.Unconfirmed: 0, firewall.Unanswered: 0, firewall.NotOffered: 0,
	} {
		first := make(chan heard, 1)
		ask := noting(first, 5, func(context.Context, uint64, bool) (Answer, error) { return Answer{Verdict: v, Generation: 9}, nil })
		got, err := ask(t.Context(), true)
		require.NoError(t, err)
		assert.Equal(t, v, got)
		assert.Len(t, first, want, "%s", v)
	}
	first := make(chan heard, 1)
	ask := noting(first, 5, func(context.Context, uint64, bool) (Answer, error) {
		return Answer{Verdict: firewall.Yes}, errors.New("late")
	})
	_, err := ask(t.Context(), true)
	require.Error(t, err)
	assert.Empty(t, first)
}
