package replica

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	testclock "k8s.io/utils/clock/testing"

	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys/memfs"
)

func TestTheDiskShowsHowMuchMayBeUnsettled(t *testing.T) {
	type wrote struct {
		bytes int64
		took  time.Duration
	}
	for _, tc := range []struct {
		name        string
		limit, want int64
		wrote       []wrote
	}{
		{"half of it at once → twice as much", 64 * mib, 128 * mib, []wrote{{32 * mib, 0}}},
		{"half of it in under a second → twice as much", 64 * mib, 128 * mib, []wrote{{40 * mib, 999 * time.Millisecond}}},
		{"never more than the most", mostLimit, mostLimit, []wrote{{mostLimit, 0}}},
		{"in a second → as much", 64 * mib, 64 * mib, []wrote{{32 * mib, time.Second}}},
		{"in two seconds → as much", 64 * mib, 64 * mib, []wrote{{32 * mib, 2 * time.Second}}},
		{"in more → half as much", 64 * mib, 32 * mib, []wrote{{32 * mib, 2001 * time.Millisecond}}},
		{"never less than the least", leastLimit, leastLimit, []wrote{{leastLimit, time.Hour}}},
		{"a little says nothing, however long it takes", 64 * mib, 64 * mib, []wrote{{31 * mib, time.Hour}}},
		{"several count once, and all their time", 64 * mib, 32 * mib, []wrote{{12 * mib, time.Second}, {12 * mib, time.Second}, {12 * mib, time.Second}}},
		{"many small flushes, each of them quick → nothing is known of the disk's speed", 64 * mib, 64 * mib, slices.Repeat([]wrote{{4 << 10, 10 * time.Millisecond}}, 10000)},
		{"many of a mebibyte, each of them quick → no faster than all of them", 128 * mib, 128 * mib, slices.Repeat([]wrote{{mib, 20 * time.Millisecond}}, 64)},
		{"twice the half in under two seconds → twice as much", 64 * mib, 128 * mib, []wrote{{64 * mib, 1999 * time.Millisecond}}},
		{"twice the half in under four → as much", 64 * mib, 64 * mib, []wrote{{64 * mib, 3999 * time.Millisecond}}},
		{"what was looked at is not looked at again", 64 * mib, 128 * mib, []wrote{{32 * mib, 0}, {63 * mib, 9 * time.Second}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := NewPace()
			p.limit.Store(tc.limit)
			c := testclock.NewFakePassiveClock(time.Unix(1000, 0))
			for _, w := range tc.wrote {
				ended := p.writes(w.bytes, c)
				c.SetTime(c.Now().Add(w.took))
				ended(true)
			}
			got := p.limit.Load()
			assert.Equal(t, tc.want, got, "%d MiB, %d", got/mib, tc.want/mib)
		})
	}
}

// Three replicas of one disk write out at the same time. Together they show the same pace as one replica would alone.
func TestConcurrentWritersShareTheTime(t *testing.T) {
	for _, tc := range []struct {
		took time.Duration // total time of all three
		want int64
	}{
		{2900 * time.Millisecond, 128 * mib}, {3100 * time.Millisecond, 64 * mib}, {6100 * time.Millisecond, 32 * mib},
	} {
		p := NewPace()
		c := testclock.NewFakePassiveClock(time.Unix(1000, 0))
		p.least = mib
		var all []func(bool)
		for range 3 {
			all = append(all, p.writes(32*mib, c))
		}
		c.SetTime(c.Now().Add(tc.took))
		all[0](true)
		assert.Equal(t, tc.want, p.limit.Load(), "%s: the first", tc.took)
		p.limit.Store(64 * mib)
		all[1](true)
		assert.Equal(t, tc.want, p.limit.Load(), "%s: the second, at the same time", tc.took)
	}
}

// A failed write-out is not measured, and a write-out that hangs does not make the others look fast.
func TestFailedAndHangingWriteOutsAreNotMeasured(t *testing.T) {
	p := NewPace()
	c := testclock.NewFakePassiveClock(time.Unix(1000, 0))
	p.writes(mib, c) // hangs
	p.writes(64*mib, c)(false)
	assert.EqualValues(t, firstLimit, p.limit.Load())
	ended := p.writes(32*mib, c)
	c.SetTime(c.Now().Add(5 * time.Second))
	ended(true)
	assert.EqualValues(t, firstLimit/2, p.limit.Load())
}

func TestAFlushAndAWriteOutShowTheDisksPace(t *testing.T) {
	f, r, s := boundedReplica(t)
	p := r.out.pace
	p.least, p.most = 4<<10, 64<<10
	p.limit.Store(64 << 10)
	c := testclock.NewFakePassiveClock(r.opts.Clock.Now())
	r.out.clock = c
	for _, step := range []struct {
		kind string
		want int64
		took time.Duration
	}{{"datasync", 32 << 10, 3 * time.Second}, {"writeback", 16 << 10, 3 * time.Second}, {"writeback", 32 << 10, 0}} {
		asked, release := hang(t, f, step.kind, dataName)
		done := make(chan error, 1)
		if step.kind == "datasync" {
			r.out.written.Add(p.share() / 2) // a write would have the data written out as well
			go func() { done <- s.Flush(t.Context()) }()
		} else {
			for r.out.unsettled() < p.share()/2 {
				require.NoError(t, s.WriteAt(t.Context(), make([]byte, 4096), 0, false))
			}
			done <- nil
		}
		<-asked
		c.SetTime(c.Now().Add(step.took))
		release()
		require.NoError(t, <-done)
		waitFor(t, func() bool { return p.limit.Load() == step.want && !r.out.running.Load() })
	}
}

func newPacedReplica(t *testing.T, p *Pace) (*memfs.FS, *Replica, *Session) {
	t.Helper()
	f := memfs.New()
	f.MkdirAll("/disk/replicas")
	require.NoError(t, Create(f, "/disk/replicas/r", testSpec("uid-1", 1<<30)))
	r, err := Open(f, "/disk/replicas/r", testSpec("uid-1", 1<<30), Options{BootID: testBoot, Pace: p})
	require.NoError(t, err)
	return f, r, admit(t, r, 1, "s")
}

// Replicas that have written much share the limit of their disk. If a replica waits because it has more than its share,
// its data is written out, even if the share shrank in the meantime.
func TestReplicasOfADiskShareItsPace(t *testing.T) {
	p := NewPace()
	p.limit.Store(64 * mib)
	_, one, first := newPacedReplica(t, p)
	_, two, second := newPacedReplica(t, p)
	require.NoError(t, first.Flush(t.Context()))
	require.NoError(t, second.Flush(t.Context()))
	block := make([]byte, mib)
	fill := func(s *Session, mibs int64) {
		t.Helper()
		for i := range mibs {
			require.NoError(t, s.WriteAt(t.Context(), block, i*mib, false))
		}
	}
	fill(first, 30) // less than half
	got := p.share()
	assert.Equal(t, int64(64*mib), got, "%d MiB", got/mib)
	fill(second, 2)
	got = p.share()
	assert.Equal(t, int64(32*mib), got, "of two: %d MiB", got/mib)
	p.limit.Store(32 * mib)
	p.most = 32 * mib
	fill(first, 1) // it has more than its share, so it waits until its data is written out
	waitFor(t, func() bool { return one.out.unsettled() <= mib })
	require.NoError(t, first.Close())
	require.NoError(t, one.Close(t.Context()))
	waitFor(t, func() bool { return p.busy.Load() == 1 })
	require.NoError(t, second.Close())
	require.NoError(t, two.Close(t.Context()))
	assert.Zero(t, p.busy.Load(), "share it after the last was closed")
}
