package replica

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/longhorn-lep/longhorn-manager/membership"
	"github.com/longhorn-lep/longhorn-manager/replica/fsys"
)

func beginRebuild(t testing.TB, s *Session) {
	t.Helper()
	_, err := s.Control(context.Background(), membership.OpBeginRebuild, nil)
	must(t, err)
}

func record(s *Session, e membership.Epoch) error {
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	_, err = s.Control(context.Background(), membership.OpRecordEpoch, b)
	return err
}

func TestTheMarkOfARebuildLastsUntilAnEpochListsTheReplica(t *testing.T) {
	ctx := context.Background()
	dir := filepath.Join(t.TempDir(), "r")
	spec := testSpec("uid-1", 16*mib)
	must(t, Create(fsys.Host{}, dir, spec))
	reopen := func(r *Replica, generation int64) (*Replica, *Session) {
		if r != nil {
			must(t, r.Close(ctx))
		}
		r = openReplica(t, fsys.Host{}, dir, spec, testBoot)
		return r, admit(t, r, generation, "s")
	}
	r, s := reopen(nil, 1)
	old := membership.NewEpoch(1, 1, []string{"other", "vol-r-1"})
	must(t, record(s, old))
	if askState(t, s).Rebuilding || r.State().Rebuilding {
		t.Error("rebuilding before a rebuild began")
	}
	beginRebuild(t, s)
	beginRebuild(t, s) // again
	if !askState(t, s).Rebuilding || !r.State().Rebuilding {
		t.Error("not rebuilding")
	}
	if err := record(s, old); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("an epoch from before the rebuild was recorded again: %v", err)
	}

	// It stays over a clean end, another engine, and epochs of others.
	r, s = reopen(r, 2)
	must(t, record(s, membership.NewEpoch(2, 1, []string{"other"})))
	if got := askState(t, s); !got.Rebuilding || !got.Epoch.Equal(membership.NewEpoch(2, 1, []string{"other"})) {
		t.Errorf("after an epoch of others %+v", got)
	}
	r, s = reopen(r, 3)
	if !askState(t, s).Rebuilding {
		t.Error("the mark was lost")
	}

	must(t, record(s, membership.NewEpoch(3, 2, []string{"other", "vol-r-1"})))
	must(t, record(s, membership.NewEpoch(3, 2, []string{"other", "vol-r-1"}))) // again: the first answer was lost
	if askState(t, s).Rebuilding || r.State().Rebuilding {
		t.Error("still rebuilding as a member")
	}
	_, s = reopen(r, 4)
	if askState(t, s).Rebuilding {
		t.Error("the mark came back")
	}
}

func TestOnlyTheEngineThatIsInMayBeginARebuild(t *testing.T) {
	r := newHostReplica(t, mib)
	old := admit(t, r, 1, "old")
	s := admit(t, r, 2, "new")
	_, err := old.Control(context.Background(), membership.OpBeginRebuild, nil)
	if !errors.Is(err, syscall.ESHUTDOWN) || !errors.Is(err, ErrFenced) {
		t.Errorf("the older engine: %v", err)
	}
	if askState(t, s).Rebuilding {
		t.Error("the older engine began a rebuild")
	}
}

// What an earlier boot may have lost was written anew by a rebuild, so the replica is as good a source as any.
func TestARebuiltReplicaCountsAsComplete(t *testing.T) {
	ctx := context.Background()
	dir := filepath.Join(t.TempDir(), "r")
	spec := testSpec("uid-1", 16*mib)
	must(t, Create(fsys.Host{}, dir, spec))
	r := openReplica(t, fsys.Host{}, dir, spec, otherBoot)
	must(t, admit(t, r, 1, "s").WriteAt(ctx, make([]byte, 512), 0, false))
	must(t, r.Close(ctx)) // with a mark, so not clean

	r = openReplica(t, fsys.Host{}, dir, spec, testBoot)
	s := admit(t, r, 2, "s")
	if askState(t, s).CacheKept {
		t.Fatal("trusted after another boot")
	}
	beginRebuild(t, s)
	must(t, record(s, membership.NewEpoch(2, 2, []string{"vol-r-1"})))
	if !askState(t, s).CacheKept {
		t.Error("not trusted after a rebuild")
	}
	must(t, r.Close(ctx))
	s = admit(t, openReplica(t, fsys.Host{}, dir, spec, testBoot), 3, "s")
	if !askState(t, s).CacheKept {
		t.Error("not trusted after a rebuild and an unclean stop in the same boot")
	}
}

func TestFence(t *testing.T) {
	ctx := context.Background()
	for _, tc := range []struct {
		name           string
		held, fence    int64
		wantGeneration int64
		wantEnded      bool
	}{
		{"an older engine is connected → shut out", 3, 5, 5, true},
		{"the engine of that generation is connected → stays", 5, 5, 5, false},
		{"a newer engine is connected → stays", 6, 5, 6, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "r")
			spec := testSpec("uid-1", mib)
			must(t, Create(fsys.Host{}, dir, spec))
			r := openReplica(t, fsys.Host{}, dir, spec, testBoot)
			s := admit(t, r, tc.held, "engine")
			for range 2 {
				must(t, r.Fence(ctx, tc.fence))
			}
			err := s.WriteAt(ctx, stampBlock(1), 0, false)
			if errors.Is(err, ErrFenced) != tc.wantEnded || (err != nil) != tc.wantEnded || errors.Is(s.Err(), ErrFenced) != tc.wantEnded {
				t.Errorf("write: %v; session ended with %v", err, s.Err())
			}
			must(t, s.Close())
			must(t, r.Close(ctx))

			r = openReplica(t, fsys.Host{}, dir, spec, testBoot)
			if got := r.State().Generation; got != tc.wantGeneration {
				t.Errorf("generation %d, want %d", got, tc.wantGeneration)
			}
			if _, err := r.Admit(ctx, tc.fence-1, "late"); !errors.Is(err, ErrFenced) {
				t.Errorf("an engine of generation %d was let in: %v", tc.fence-1, err)
			}
			must(t, admit(t, r, 7, "next").Close())
		})
	}
}

func TestAFenceWaitsForTheRequestUnderWay(t *testing.T) {
	r := newHostReplica(t, mib)
	old := admit(t, r, 1, "old")
	inside, err := old.begin() // a request that hangs in the disk
	must(t, err)
	short, cancel := context.WithCancel(context.Background())
	fenced := make(chan error)
	go func() { fenced <- r.Fence(short, 2) }()
	<-old.Done()
	cancel()
	if err := <-fenced; !errors.Is(err, context.Canceled) {
		t.Fatalf("fenced beside a request of the older engine: %v", err)
	}
	if got := r.State().Generation; got != 1 {
		t.Errorf("generation %d before the older request ended", got)
	}
	old.gate.leave(inside)
	must(t, r.Fence(context.Background(), 2))
	must(t, old.Close())
}

func TestWhatIsOpenedForReadingAloneIsNotTouched(t *testing.T) {
	ctx := context.Background()
	for _, tc := range []struct {
		name    string
		prepare func(t *testing.T, dir string, s *Session)
		caution string
	}{
		{"closed in order", nil, ""},
		{"left unclean, with a mark", func(t *testing.T, _ string, s *Session) {
			must(t, s.WriteAt(ctx, stampBlock(3), 8*mib, true))
		}, "not closed in order; 1 regions of 4194304 bytes may differ from other replicas"},
		{"in the middle of a rebuild", func(t *testing.T, _ string, s *Session) { beginRebuild(t, s) }, "incomplete, for its rebuild did not end"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "r")
			spec := testSpec("uid-1", 16*mib)
			must(t, Create(fsys.Host{}, dir, spec))
			r := openReplica(t, fsys.Host{}, dir, spec, testBoot)
			if tc.prepare != nil {
				tc.prepare(t, dir, admit(t, r, 1, "s"))
			}
			must(t, r.Close(ctx))

			before := treeHash(t, dir)
			found, err := Inspect(fsys.Host{}, dir)
			if err != nil || found != spec {
				t.Fatalf("found %+v, %v", found, err)
			}
			r, err = Open(fsys.Host{}, dir, found, Options{ReadOnly: true})
			must(t, err)
			if got := r.Caution(); got != tc.caution {
				t.Errorf("caution %q, want %q", got, tc.caution)
			}
			if _, err := r.Admit(ctx, 9, "s"); !errors.Is(err, ErrReadOnly) {
				t.Errorf("an engine was let in: %v", err)
			}
			if err := r.Fence(ctx, 9); !errors.Is(err, ErrReadOnly) {
				t.Errorf("fenced: %v", err)
			}
			v, err := r.View()
			must(t, err)
			must(t, v.ReadAt(ctx, make([]byte, 4096), 8*mib))
			if _, err := v.Extents(ctx, 0, 16*mib); err != nil {
				t.Error(err)
			}
			if _, err := Open(fsys.Host{}, dir, spec, Options{}); ReasonOf(err) != Locked {
				t.Errorf("opened beside a reader: %v", err)
			}
			must(t, r.Close(ctx)) // with a view open
			if treeHash(t, dir) != before {
				t.Error("reading changed something")
			}
		})
	}
}

func TestADamagedReplicaCanStillBeReadIfItsDataIsThere(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "r")
	spec := testSpec("uid-1", 16*mib)
	must(t, Create(fsys.Host{}, dir, spec))
	r := openReplica(t, fsys.Host{}, dir, spec, testBoot)
	must(t, admit(t, r, 1, "s").WriteAt(context.Background(), stampBlock(7), 0, true))
	must(t, r.Close(context.Background()))
	remove(intentName)(t, dir)
	r, err := Open(fsys.Host{}, dir, spec, Options{ReadOnly: true})
	must(t, err)
	defer r.Close(context.Background())
	if !strings.Contains(r.Caution(), "intent map cannot be read") {
		t.Errorf("caution %q", r.Caution())
	}
	v, err := r.View()
	must(t, err)
	got := make([]byte, 512)
	must(t, v.ReadAt(context.Background(), got, 0))
	if got[0] != 7 {
		t.Errorf("read %d", got[0])
	}
	must(t, v.Close())
}
