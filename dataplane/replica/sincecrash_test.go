package replica

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys/memfs"
)

// sinceLife is one life of a replica, with the facts that the replica must know if it knows anything.
type sinceLife struct {
	last    map[string]membership.Epoch // of the replicas that are away
	changed map[string]map[int64]bool   // regions that were changed since
	base    membership.Epoch
}

func (l *sinceLife) put(s *Session, regions ...int64) error {
	for _, r := range regions {
		if err := put(s, r); err != nil {
			return err // without a durable mark nothing was changed
		}
		for name := range l.last {
			l.changed[name][r] = true
		}
	}
	return clearRegions(s, regions[1:]...)
}

func (l *sinceLife) record(s *Session, e membership.Epoch) error {
	prior := s.state().Epoch
	for _, name := range prior.Members {
		if prior.Has(self) && !e.Has(name) && name != self {
			l.last[name], l.changed[name] = prior, map[int64]bool{}
		}
	}
	if prior.Has(self) && !e.Has(self) {
		l.base = prior
	}
	return record(s, e)
}

// live stops at the first error.
func (l *sinceLife) live(f *memfs.FS) error {
	ctx := context.Background()
	enter := func(generation int64) (*Replica, *Session, error) {
		r, err := Open(f, crashDir, testSpec("uid-1", crashSize), Options{BootID: testBoot})
		if err != nil {
			return nil, nil, err
		}
		s, err := r.Admit(ctx, generation, "s")
		return r, s, err
	}
	r, s, err := enter(1)
	for _, step := range []func() error{
		func() error { return l.record(s, lastOfC) },
		func() error { return l.put(s, 0, 1) },
		func() error { return l.record(s, epoch(1, 2, self, "b")) },
		func() error { return l.put(s, 1, 2, 3) },
		func() error { s, err = r.Admit(ctx, 2, "s"); return err },
		func() error { return l.record(s, epoch(2, 1, self, "b")) },
		func() error { return l.put(s, 3, 4) },
		func() error { return l.record(s, epoch(2, 2, self)) },
		func() error { return l.put(s, 6, 5) },
		func() error { return r.Close(ctx) },
		func() error { r, s, err = enter(3); return err },
		func() error { return l.record(s, epoch(3, 1, self)) },
		func() error { return l.put(s, 7, 6) },
		func() error { return l.record(s, epoch(3, 2, "d")) },
		func() error { _, err := s.Control(ctx, membership.OpBeginRebuild, nil); return err },
		func() error { return r.Close(ctx) },
	} {
		if err == nil {
			err = step()
		}
	}
	return err
}

// After a crash at any step, with any part of the unsynced data lost, a replica that answers which regions were changed
// names all of them. A replica that names a base names the last epoch of which it was a member.
func TestACrashNeverLosesAPartOfTheRecord(t *testing.T) {
	f := newCrashDisk(t)
	first := f.Steps()
	require.NoError(t, newSinceLife().live(f))
	last := f.Steps()
	knew, based := 0, 0
	for at := first + 1; at <= last; at++ {
		for seed := range uint64(8) {
			f := newCrashDisk(t)
			f.Before(func(op memfs.Op) error {
				if op.N == at {
					return memfs.ErrCrashed
				}
				return nil
			})
			l := newSinceLife()
			name := fmt.Sprintf("step %d, seed %d", at, seed)
			require.ErrorIs(t, l.live(f), memfs.ErrCrashed, name)
			if seed%2 == 1 { // another process relies on data of the killed process, and then the power is lost
				f.Kill()
				r, err := Open(f, crashDir, testSpec("uid-1", crashSize), Options{BootID: testBoot})
				require.NoError(t, err, name)
				l.check(t, r, name)
				for _, changed := range l.changed {
					require.NoError(t, r.clearIntents(slices.Collect(maps.Keys(changed))), name)
				}
			}
			f.Crash(rand.New(rand.NewPCG(uint64(at), seed)))
			r, err := Open(f, crashDir, testSpec("uid-1", crashSize), Options{BootID: testBoot})
			require.NoError(t, err, name)
			k, b := l.check(t, r, name)
			knew, based = knew+k, based+b
			require.NoError(t, r.Close(t.Context()))
		}
	}
	assert.Greater(t, knew, 300, "it hardly ever knows anything")
	assert.Greater(t, based, 20)
}

func newSinceLife() *sinceLife {
	return &sinceLife{last: map[string]membership.Epoch{}, changed: map[string]map[int64]bool{}}
}

func (l *sinceLife) check(t *testing.T, r *Replica, when string) (knew, based int) {
	t.Helper()
	for name, last := range l.last {
		b, err := r.changedSince(membership.Away{Replica: name, Epoch: last})
		if err != nil {
			continue
		}
		knew++
		var regions membership.Regions
		require.NoError(t, json.Unmarshal(b, &regions))
		for region := range l.changed[name] {
			require.True(t, slices.Contains(regions.Indexes, region), "%s: %v was changed since %s was away, not only %v", when, l.changed[name], name, regions.Indexes)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	base := r.baseLocked()
	if !base.IsZero() && !r.meta.Epoch.Has(self) {
		based++
		require.Equal(t, l.base, base, when)
	}
	return knew, based
}
