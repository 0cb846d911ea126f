package replica

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

func TestDecideAdmission(t *testing.T) {
	for _, tc := range []struct {
		name        string
		held        int64
		heldSession string
		generation  int64
		session     string
		want        admission
	}{
		{"a new replica, the first engine → in", 0, "", 1, "a", admitTakeover},
		{"a new replica, a late generation → in", 0, "", 9, "a", admitTakeover},
		{"a higher generation → takes over", 3, "a", 4, "b", admitTakeover},
		{"a higher generation by the same session → takes over", 3, "a", 4, "a", admitTakeover},
		{"the engine that is in → again", 3, "a", 3, "a", admitAgain},
		{"the same generation by another engine → never", 3, "a", 3, "b", admitNever},
		{"a lower generation → never", 3, "a", 2, "a", admitNever},
		{"generation zero → never", 0, "", 0, "a", admitNever},
		{"a negative generation → never", 0, "", -1, "a", admitNever},
		{"no session → never", 3, "a", 4, "", admitNever},
		{"the session of a fence → never", 3, "a", 4, fenceSession, admitNever},
		{"a session of as many bytes as the metadata takes → in", 3, "a", 4, strings.Repeat("s", maxSessionBytes), admitTakeover},
		{"a longer session → never", 3, "a", 4, strings.Repeat("s", maxSessionBytes+1), admitNever},
		{"a session that is no text, which the metadata would hold as another → never", 3, "a", 4, strings.Repeat("\xff", 100), admitNever},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := decideAdmission(tc.held, tc.heldSession, tc.generation, tc.session)
			assert.Equal(t, tc.want, got)
			assert.Equal(t, tc.want == admitNever, err != nil)
			if err != nil {
				assert.ErrorIs(t, err, ErrFenced)
			}
		})
	}
}

func TestAdmissionIsDurable(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "r")
	spec := testSpec("uid-1", mib)
	require.NoError(t, Create(fsys.Host{}, dir, spec))
	r := openReplica(t, fsys.Host{}, dir, spec, testBoot)
	require.NoError(t, admit(t, r, 5, "five").Close())
	require.NoError(t, r.Close(context.Background()))

	r = openReplica(t, fsys.Host{}, dir, spec, testBoot)
	got := r.State()
	assert.Equal(t, int64(5), got.Generation)
	assert.False(t, got.Connected)
	for _, tc := range []struct {
		generation int64
		session    string
		ok         bool
	}{{4, "four", false}, {5, "other", false}, {5, "five", true}} {
		s, err := r.Admit(context.Background(), tc.generation, tc.session)
		assert.Equal(t, tc.ok, err == nil, "admit %d %q: %v", tc.generation, tc.session, err)
		if err == nil {
			require.NoError(t, s.Close())
		}
	}
}

func TestTheSameSessionIsAdmittedAgainOnceItsEarlierConnectionIsClosed(t *testing.T) {
	r := newHostReplica(t, mib)
	first := admit(t, r, 1, "s")
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := r.Admit(canceled, 1, "s")
	require.Error(t, err, "admitted twice at once")
	require.NoError(t, first.Flush(context.Background()), "the one who asked too early disturbed the session")
	admitted := make(chan *Session)
	go func() {
		s, err := r.Admit(context.Background(), 1, "s")
		assert.NoError(t, err)
		admitted <- s
	}()
	require.NoError(t, first.Close())
	second := <-admitted
	require.NoError(t, second.Flush(context.Background()))
	assert.ErrorIs(t, first.Flush(context.Background()), syscall.ESHUTDOWN, "closed session")
	require.NoError(t, second.Close())
}

// Eight writers of generation 1 repeatedly stamp every block with 1. Then generation 2 takes over and stamps with 2.
// From then on no block may return to 1.
func TestAfterATakeoverNoWriteOfTheOlderEngineChangesData(t *testing.T) {
	const writers, blocks = 8, 64
	ctx := context.Background()
	for round := range 20 {
		r := newHostReplica(t, 16*mib)
		old := admit(t, r, 1, "old")
		var running sync.WaitGroup
		var wrote atomic.Int64
		started := make(chan struct{})
		for w := range writers {
			running.Go(func() {
				stamp := stampBlock(1)
				for i := w; ; i++ {
					err := old.WriteAt(ctx, stamp, int64(i%blocks)*512, false)
					if errors.Is(err, syscall.ESHUTDOWN) {
						return
					}
					if err != nil {
						t.Error(err)
						return
					}
					if wrote.Add(1) == blocks {
						close(started)
					}
				}
			})
		}
		<-started
		s := admit(t, r, 2, "new")
		select {
		case <-old.Done():
		default:
			t.Error("the older session does not know that it is over")
		}
		assert.ErrorIs(t, old.Err(), ErrFenced)
		for b := range blocks {
			require.NoError(t, s.WriteAt(ctx, stampBlock(2), int64(b)*512, false))
		}
		running.Wait()
		got := make([]byte, blocks*512)
		require.NoError(t, s.ReadAt(ctx, got, 0))
		for b := range blocks {
			require.Equal(t, byte(2), got[b*512], "round %d: block %d", round, b)
		}
		assert.ErrorIs(t, old.WriteAt(ctx, stampBlock(1), 0, false), syscall.ESHUTDOWN, "late write")
		require.NoError(t, old.Close())
		require.NoError(t, s.Flush(ctx)) // the close of the older session does not end the newer
		require.NoError(t, s.Close())
		require.NoError(t, r.Close(ctx))
	}
}

func TestATakeoverWaitsForTheRequestUnderWay(t *testing.T) {
	r := newHostReplica(t, mib)
	old := admit(t, r, 1, "old")
	inside, err := old.begin() // a request that hangs in the disk
	require.NoError(t, err)
	short, cancel := context.WithCancel(context.Background())
	refused := make(chan error)
	go func() {
		_, err := r.Admit(short, 2, "new")
		refused <- err
	}()
	<-old.Done() // shut out; now the newer engine waits
	cancel()
	require.ErrorIs(t, <-refused, context.Canceled, "admitted beside a request of the older engine")
	got := r.State().Generation
	assert.Equal(t, int64(1), got, "generation %d before the older request ended", got)
	assert.ErrorIs(t, old.Flush(context.Background()), syscall.ESHUTDOWN, "the older engine still gets in")
	old.gate.leave(inside)
	require.NoError(t, admit(t, r, 2, "new").Close())
	require.NoError(t, old.Close())
}

func TestViewsReadUntilAnEngineComes(t *testing.T) {
	ctx := context.Background()
	r := newHostReplica(t, mib)
	v, err := r.View()
	require.NoError(t, err)
	require.NoError(t, v.ReadAt(ctx, make([]byte, 512), 0))
	assert.ErrorIs(t, v.WriteAt(ctx, make([]byte, 512), 0, false), syscall.EPERM, "write to a view")
	inside, err := v.begin() // a read that hangs does not delay an admission
	require.NoError(t, err)
	s := admit(t, r, 1, "s")
	<-v.Done()
	assert.ErrorIs(t, v.ReadAt(ctx, make([]byte, 512), 0), syscall.ESHUTDOWN, "read of a view beside an engine")
	v.gate.leave(inside)
	require.NoError(t, v.Close())
	_, err = r.View()
	assert.ErrorIs(t, err, ErrInUse, "view beside an engine")
	require.NoError(t, s.Close())
	v, err = r.View()
	require.NoError(t, err)
	require.NoError(t, v.Close())
}

func TestControl(t *testing.T) {
	ctx := context.Background()
	r := newHostReplica(t, 16*mib)
	s := admit(t, r, 4, "s")
	e := membership.NewEpoch(4, 1, []string{"a", "b"})
	for _, tc := range []struct {
		name    string
		op      uint16
		payload string
		want    error
	}{
		{"an epoch is recorded", membership.OpRecordEpoch, `{"generation":4,"counter":1,"members":["a","b"]}`, nil},
		{"the same again is success", membership.OpRecordEpoch, `{"generation":4,"counter":1,"members":["a","b"]}`, nil},
		{"the same with other members is refused", membership.OpRecordEpoch, `{"generation":4,"counter":1,"members":["a"]}`, syscall.EINVAL},
		{"an older one is refused", membership.OpRecordEpoch, `{"generation":3,"counter":9,"members":["a"]}`, syscall.EINVAL},
		{"one of a later generation is refused", membership.OpRecordEpoch, `{"generation":5,"counter":1,"members":["a"]}`, syscall.EINVAL},
		{"none is refused", membership.OpRecordEpoch, `{}`, syscall.EINVAL},
		{"a payload that is no JSON is refused", membership.OpRecordEpoch, `{`, syscall.EINVAL},
		{"a region that does not exist is refused", membership.OpClearIntents, string(regionsPayload(t, 4)), syscall.EINVAL},
		{"a set of regions that is none is refused", membership.OpClearIntents, `{"first":-8}`, syscall.EINVAL},
		{"an operation that does not exist is refused", 99, ``, syscall.ENOTSUP},
	} {
		_, err := s.Control(ctx, tc.op, []byte(tc.payload))
		assert.ErrorIs(t, err, tc.want, tc.name)
	}
	got := askState(t, s)
	assert.Equal(t, "uid-1", got.UID)
	assert.Equal(t, int64(16*mib), got.SizeBytes)
	assert.Equal(t, int64(4), got.Generation)
	assert.True(t, got.Epoch.Equal(e))
	assert.Equal(t, int64(4*mib), got.RegionBytes)
	assert.True(t, r.State().Epoch.Equal(e), "replica's state %+v", r.State())
}

// If the metadata cannot hold an epoch, the engine that sent the epoch is at fault, not the disk.
func TestAnEpochThatIsTooLargeIsRefusedAndTheReplicaContinues(t *testing.T) {
	r := newHostReplica(t, mib)
	s := admit(t, r, 1, "s")
	before := membership.NewEpoch(1, 1, []string{"a"})
	require.NoError(t, record(s, before))
	assert.ErrorIs(t, record(s, membership.NewEpoch(1, 2, []string{strings.Repeat("a", maxMetaPayload)})), syscall.EINVAL)
	got := r.State()
	require.NoError(t, got.Failure)
	assert.True(t, got.Epoch.Equal(before))
	require.NoError(t, s.WriteAt(context.Background(), make([]byte, 512), 0, true))
}

func stampBlock(generation byte) []byte {
	b := make([]byte, 512)
	for i := range b {
		b[i] = generation
	}
	return b
}

func askState(t testing.TB, s *Session) membership.State {
	t.Helper()
	b, err := s.Control(context.Background(), membership.OpState, nil)
	require.NoError(t, err)
	var got membership.State
	require.NoError(t, json.Unmarshal(b, &got))
	return got
}

func marks(t testing.TB, s *Session) []int64 {
	t.Helper()
	b, err := s.Control(context.Background(), membership.OpIntents, nil)
	require.NoError(t, err)
	var got membership.Regions
	require.NoError(t, json.Unmarshal(b, &got))
	return got.Indexes
}

func clearMarks(t testing.TB, s *Session, regions ...int64) {
	t.Helper()
	_, err := s.Control(context.Background(), membership.OpClearIntents, regionsPayload(t, regions...))
	require.NoError(t, err)
}

func regionsPayload(t testing.TB, regions ...int64) []byte {
	t.Helper()
	b, err := json.Marshal(membership.Regions{Indexes: regions})
	require.NoError(t, err)
	return b
}
