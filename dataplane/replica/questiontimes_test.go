package replica

import (
	"context"
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys/memfs"
)

func askInForce(t *testing.T, s *Session, limited bool) {
	t.Helper()
	payload, err := json.Marshal(membership.InForce{Limited: limited})
	require.NoError(t, err)
	reply, err := s.Control(context.Background(), membership.OpInForce, payload)
	require.NoError(t, err)
	assert.Empty(t, reply)
}

func lastAsked(t *testing.T, s *Session) *membership.LastAsked {
	t.Helper()
	return s.state().LastAsked
}

// TestAReplicaRemembersWhenEnginesAsked covers the events that concern a replica, with a clock that only the test
// moves.
func TestAReplicaRemembersWhenEnginesAsked(t *testing.T) {
	now := time.Hour
	asked := NewQuestionTimes()
	asked.now = func() time.Duration { return now }
	dir, spec := filepath.Join(t.TempDir(), "r"), testSpec("uid-1", 8*mib)
	require.NoError(t, Create(fsys.Host{}, dir, spec))
	open := func(asked *QuestionTimes) *Replica {
		r, err := Open(fsys.Host{}, dir, spec, Options{BootID: testBoot, Questions: asked})
		require.NoError(t, err)
		t.Cleanup(func() { _ = r.Close(context.Background()) })
		return r
	}
	r := open(asked)
	five := admit(t, r, 5, "five")
	assert.Nil(t, lastAsked(t, five), "no engine asked")
	askInForce(t, five, true)
	now += time.Second
	askInForce(t, five, true)
	assert.Nil(t, lastAsked(t, five), "its own questions are none of a generation before")
	now += 1500 * time.Millisecond

	six := admit(t, r, 6, "six")
	now += time.Second
	assert.Equal(t, &membership.LastAsked{Generation: 5, AgoMillis: 2500}, lastAsked(t, six), "the last question counts, and the age goes on")
	_, err := five.Control(context.Background(), membership.OpInForce, []byte(`{"limited":true}`))
	require.ErrorIs(t, err, ErrFenced)
	assert.Equal(t, int64(2500), lastAsked(t, six).AgoMillis, "what a fenced engine asks changes nothing")

	seven := admit(t, r, 7, "seven")
	assert.Equal(t, int64(5), lastAsked(t, seven).Generation, "the one before asked nothing; whether that matters the engine knows")
	askInForce(t, seven, true)
	require.NoError(t, r.Fence(context.Background(), 8))
	require.NoError(t, r.Close(context.Background()))
	now += 4 * time.Second
	r = open(asked)
	nine := admit(t, r, 9, "nine")
	assert.Equal(t, &membership.LastAsked{Generation: 7, AgoMillis: 4000}, lastAsked(t, nine), "a fence and a stop change nothing")

	askInForce(t, nine, true)
	require.NoError(t, nine.Close())
	nine = admit(t, r, 9, "nine")
	ten := admit(t, r, 10, "ten")
	assert.Equal(t, int64(7), lastAsked(t, ten).Generation, "it was admitted again, so it may not have been asked as a member")

	askInForce(t, ten, true)
	askInForce(t, ten, false)
	eleven := admit(t, r, 11, "eleven")
	assert.Equal(t, int64(7), lastAsked(t, eleven).Generation, "a question without limit takes the age of the ones before")
	askInForce(t, eleven, false)
	askInForce(t, eleven, true)
	twelve := admit(t, r, 12, "twelve")
	assert.Equal(t, int64(11), lastAsked(t, twelve).Generation, "it has a limit again")

	require.NoError(t, r.Close(context.Background()))
	r = open(nil)
	thirteen := admit(t, r, 13, "thirteen")
	assert.Nil(t, lastAsked(t, thirteen), "another process knows nothing")
	_ = nine
}

// The gate admits no request of an older session. If one came all the same, it would not count for the admitted engine.
func TestAQuestionOfAnOlderEngineDoesNotCountForTheNewEngine(t *testing.T) {
	a := NewQuestionTimes()
	a.admitted(5)
	a.record(4, true)
	a.admitted(6)
	assert.Nil(t, a.before())
}

// The question is answered although the disk hangs in a write and in the replica's lane: a slow disk does not close the
// port of a share.
func TestTheQuestionWaitsForNoDisk(t *testing.T) {
	for kind, name := range map[string]string{"write": dataName, "sync": metaTempName} {
		f := memfs.New()
		spec := testSpec("uid-1", 8*mib)
		f.MkdirAll("/d")
		require.NoError(t, Create(f, "/d/r", spec))
		r, err := Open(f, "/d/r", spec, Options{BootID: testBoot})
		require.NoError(t, err)
		s := admit(t, r, 1, "s")
		asked, release := hang(t, f, kind, name)
		ended := make(chan error, 1)
		go func() {
			if kind == "write" {
				ended <- s.WriteAt(context.Background(), make([]byte, 4096), 0, false)
				return
			}
			epoch, err := json.Marshal(membership.NewEpoch(1, 1, []string{spec.Name}))
			if err == nil {
				_, err = s.Control(context.Background(), membership.OpRecordEpoch, epoch)
			}
			ended <- err
		}()
		<-asked
		askInForce(t, s, true)
		_, err = s.Control(context.Background(), membership.OpInForce, []byte("no JSON"))
		require.ErrorIs(t, err, nbd.EINVAL)
		release()
		require.NoError(t, <-ended)
		require.NoError(t, s.Close())
		require.NoError(t, r.Close(context.Background()))
	}
}
