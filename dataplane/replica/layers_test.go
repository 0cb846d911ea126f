package replica

import (
	"context"
	"encoding/json"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/points"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys/memfs"
)

// control sends an operation. A nil reply is not decoded.
func control(s *Session, op uint16, request, reply any) error {
	payload, err := json.Marshal(request)
	if err != nil {
		return err
	}
	b, err := s.Control(context.Background(), op, payload)
	if err != nil || reply == nil {
		return err
	}
	return json.Unmarshal(b, reply)
}

func point(n int) layers.Point { return layers.Point{Number: layers.Number(n), Nonce: uint64(n) * 10} }

func prepare(s *Session, p layers.Point) error {
	return control(s, points.OpPrepare, points.Prepare{Point: p, Limit: layers.MostFiles}, nil)
}

func takeSnapshot(s *Session, p layers.Point) error {
	if err := prepare(s, p); err != nil {
		return err
	}
	if err := control(s, points.OpSwitch, p, nil); err != nil {
		return err
	}
	return control(s, points.OpSeal, p, nil)
}

// lineOf is a line in which the points have the given states.
func lineOf(counter int, states map[int]layers.State) layers.Line {
	l := layers.Line{Counter: layers.Number(counter)}
	for n := 1; n <= counter; n++ {
		if st, ok := states[n]; ok {
			l.Points = append(l.Points, layers.Mark{Point: point(n), State: st})
		}
	}
	return l
}

func readByte(t *testing.T, s *Session, p layers.Point, off int64) byte {
	t.Helper()
	payload, err := json.Marshal(points.ReadView{Point: p, Offset: off, Length: 512})
	require.NoError(t, err)
	b, err := s.Control(t.Context(), points.OpReadView, payload)
	require.NoError(t, err)
	require.Len(t, b, 512)
	return b[0]
}

func stateOf(t *testing.T, s *Session) (st points.State) {
	t.Helper()
	require.NoError(t, control(s, points.OpState, struct{}{}, &st))
	return st
}

func TestAReplicaHasFormat1UntilItsFirstSnapshot(t *testing.T) {
	_, r := newMemReplica(t, 16*mib)
	s := admit(t, r, 1, "s")
	require.NoError(t, s.WriteAt(t.Context(), stampBlock(1), 0, false))
	assert.Equal(t, points.State{Version: 1, Chain: layers.NewChain()}, stateOf(t, s))
	require.NoError(t, control(s, points.OpFollow, points.Follow{}, nil))
	require.NoError(t, control(s, points.OpLine, points.Line{Line: lineOf(3, nil)}, nil))
	assert.ErrorIs(t, control(s, points.OpSwitch, point(1), nil), layers.ErrNotPrepared)
	assert.ErrorIs(t, control(s, points.OpSeal, point(1), nil), layers.ErrNoBorder)
	assert.ErrorIs(t, control(s, points.OpStartRebuild, points.StartRebuild{}, nil), syscall.EINVAL, "it is not being rebuilt")
	var differs points.Ranges
	require.NoError(t, control(s, points.OpDiffers, points.Differs{From: point(1)}, &differs))
	assert.True(t, differs.Unknown)
	assert.Equal(t, 1, r.State().FormatVersion)
	names, err := r.dir.Names()
	require.NoError(t, err)
	assert.Equal(t, []string{dataName, intentName, metaName, metaTempName}, names)

	require.NoError(t, takeSnapshot(s, point(4)))
	assert.Equal(t, 2, r.State().FormatVersion)
	got := stateOf(t, s)
	assert.Equal(t, 2, got.Version)
	assert.Equal(t, layers.Border{Point: point(4), Flushed: true}, got.Chain.Layers[0].Top)
	assert.NoError(t, r.State().Failure)
}

func TestAViewKeepsTheContentOfItsPoint(t *testing.T) {
	_, r := newMemReplica(t, 16*mib)
	s := admit(t, r, 1, "s")
	require.NoError(t, s.WriteAt(t.Context(), stampBlock(1), 0, false))
	require.NoError(t, takeSnapshot(s, point(1)))
	require.NoError(t, s.WriteAt(t.Context(), stampBlock(2), 0, false))
	require.NoError(t, s.WriteAt(t.Context(), stampBlock(2), 8*mib, false))
	require.NoError(t, takeSnapshot(s, point(2)))
	require.NoError(t, s.WriteAt(t.Context(), stampBlock(3), 8*mib+512, false))

	assert.EqualValues(t, 1, readByte(t, s, point(1), 0))
	assert.EqualValues(t, 0, readByte(t, s, point(1), 8*mib))
	assert.EqualValues(t, 2, readByte(t, s, point(2), 8*mib))
	assert.EqualValues(t, 0, readByte(t, s, point(2), 8*mib+512))
	assert.EqualValues(t, 3, readByte(t, s, layers.Point{}, 8*mib+512))
	_, err := s.Control(t.Context(), points.OpReadView, []byte(`{"point":{"number":3,"nonce":1},"length":512}`))
	assert.ErrorIs(t, err, layers.ErrNoBorder)
	_, err = s.Control(t.Context(), points.OpReadView, []byte(`{"length":1048577}`))
	assert.ErrorIs(t, err, syscall.EINVAL)

	for _, tc := range []struct {
		name     string
		from, to layers.Point
		want     []points.Range
	}{
		{"between points", point(1), point(2), []points.Range{{Offset: 0, Length: 4096}, {Offset: 8 * mib, Length: 4096}}},
		{"up to the present", point(2), layers.Point{}, []points.Range{{Offset: 8 * mib, Length: 4096}}},
		{"all data of a point", layers.Point{}, point(1), []points.Range{{Offset: 0, Length: 512}}},
	} {
		var got points.Ranges
		require.NoError(t, control(s, points.OpDiffers, points.Differs{From: tc.from, To: tc.to}, &got), tc.name)
		assert.Equal(t, points.Ranges{Ranges: tc.want, Next: 16 * mib}, got, tc.name)
	}

	v, err := r.ViewAt(1)
	require.NoError(t, err, "an engine is connected")
	got := make([]byte, 512)
	require.NoError(t, v.ReadAt(t.Context(), got, 0))
	assert.EqualValues(t, 1, got[0])
	require.NoError(t, v.Close())
	_, err = r.ViewAt(3)
	assert.ErrorIs(t, err, layers.ErrNoBorder)
	all, err := r.Layers()
	require.NoError(t, err)
	assert.Equal(t, 2, all.FormatVersion)
	require.Len(t, all.Points, 2)
	assert.Equal(t, PointState{Point: point(2), AllocatedBytes: 8192, Flushed: true}, all.Points[1])
	assert.EqualValues(t, 4096, all.HeadBytes)
}

// Writers write all the time, each to its own blocks. Each write that is acknowledged must be there, and no write may
// reach a layer after its border is sealed.
func TestWritesUnderWayAreKeptWhenTheFormatChanges(t *testing.T) {
	r := newHostReplica(t, 64*mib)
	s := admit(t, r, 1, "s")
	var stop atomic.Bool
	var writers sync.WaitGroup
	last := make([]byte, 8)
	for w := range last {
		writers.Go(func() {
			for stamp := byte(1); !stop.Load(); stamp = stamp%250 + 1 {
				for _, off := range []int64{int64(w) * 1024, 32*mib + int64(w)*512} { // some share a block of 4 KiB
					if !assert.NoError(t, s.WriteAt(t.Context(), stampBlock(stamp), off, stamp%16 == 0)) {
						return
					}
					got := make([]byte, 512)
					if assert.NoError(t, s.ReadAt(t.Context(), got, off)) {
						assert.Equal(t, stamp, got[0], "the last write of the only writer")
					}
				}
				last[w] = stamp
			}
		})
	}
	for n := 1; n <= 3; n++ {
		require.NoError(t, prepare(s, point(n)))
		require.NoError(t, control(s, points.OpSwitch, point(n), nil))
		require.NoError(t, control(s, points.OpSeal, point(n), nil))
		for w := range last {
			sealed := readByte(t, s, point(n), int64(w)*1024)
			require.NoError(t, s.Flush(t.Context()))
			assert.Equal(t, sealed, readByte(t, s, point(n), int64(w)*1024))
		}
	}
	stop.Store(true)
	writers.Wait()
	require.NoError(t, s.Flush(t.Context()))
	for w, want := range last {
		assert.Equal(t, want, readByte(t, s, layers.Point{}, int64(w)*1024))
		assert.Equal(t, want, readByte(t, s, layers.Point{}, 32*mib+int64(w)*512))
	}
	require.NoError(t, r.Close(t.Context()))

	spec := testSpec("uid-1", 64*mib)
	again := openReplica(t, fsys.Host{}, r.dirPath, spec, otherBoot)
	v, err := again.View()
	require.NoError(t, err)
	for w, want := range last {
		got := make([]byte, 512)
		require.NoError(t, v.ReadAt(t.Context(), got, int64(w)*1024))
		assert.Equal(t, want, got[0])
	}
	require.NoError(t, v.Close())
	require.NoError(t, again.Close(t.Context()))
	require.NoError(t, Remove(fsys.Host{}, r.dirPath, spec.UID))
	assert.NoFileExists(t, filepath.Join(r.dirPath, "2.img"))
}

func TestASwitchWaitsNeitherForTheLaneNorForTheDisk(t *testing.T) {
	f, r := newMemReplica(t, 16*mib)
	s := admit(t, r, 1, "s")
	require.NoError(t, prepare(s, point(1)))
	hangs, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	f.Before(func(op memfs.Op) error {
		once.Do(func() { close(hangs) })
		<-release
		return nil
	})
	ended := make(chan error)
	go func() { ended <- control(s, membership.OpRecordEpoch, membership.NewEpoch(1, 1, []string{"a"}), nil) }()
	<-hangs
	require.NoError(t, control(s, points.OpSwitch, point(1), nil))
	require.NoError(t, control(s, points.OpSwitch, point(1), nil), "it is safe to repeat")
	assert.ErrorIs(t, control(s, points.OpSwitch, point(2), nil), layers.ErrNotPrepared)
	close(release)
	require.NoError(t, <-ended)
	require.NoError(t, control(s, points.OpSeal, point(1), nil))
}

func TestDeletedPointsAreMergedInTheBackground(t *testing.T) {
	_, r := newMemReplica(t, 16*mib)
	s := admit(t, r, 1, "s")
	for n := 1; n <= 3; n++ {
		require.NoError(t, s.WriteAt(t.Context(), stampBlock(byte(n)), int64(n)*mib, false))
		require.NoError(t, takeSnapshot(s, point(n)))
	}
	require.NoError(t, s.WriteAt(t.Context(), stampBlock(9), 9*mib, false))
	assert.EqualValues(t, 1, readByte(t, s, point(2), mib), "the session keeps this view open")
	line := lineOf(3, map[int]layers.State{1: layers.Ready, 2: layers.Deleted, 3: layers.Ready})
	require.NoError(t, control(s, points.OpLine, points.Line{Line: line, Needed: []layers.Point{point(2)}}, nil))
	require.NoError(t, control(s, points.OpLine, points.Line{Line: line}, nil))
	waitFor(t, func() bool {
		c := r.chainNow().Layers()
		return c.Border(point(2)) < 0 && !hasMerge(c)
	})
	assert.EqualValues(t, 2, readByte(t, s, point(3), 2*mib))
	assert.EqualValues(t, 0, readByte(t, s, point(1), 2*mib))
	assert.GreaterOrEqual(t, r.chainNow().Layers().Border(point(1)), 0)
	assert.NoError(t, r.State().Failure)
}

// The irreversible steps of a merge must not happen to any of these borders.
func TestABorderThatMayNotGoStays(t *testing.T) {
	held := lineOf(2, map[int]layers.State{1: layers.Ready, 2: layers.Deleted})
	held.Points[1].Holds = []string{"a backup"}
	for name, line := range map[string]points.Line{
		"ready":                   {Line: lineOf(2, map[int]layers.State{1: layers.Ready, 2: layers.Ready})},
		"held by a job":           {Line: held},
		"needed by a rebuild":     {Line: lineOf(2, map[int]layers.State{1: layers.Ready, 2: layers.Deleted}), Needed: []layers.Point{point(2)}},
		"intended":                {Line: lineOf(2, map[int]layers.State{1: layers.Ready, 2: layers.Intended})},
		"newer than the line":     {Line: lineOf(1, map[int]layers.State{1: layers.Ready})},
		"before any line":         {},
		"its counter is the last": {Line: lineOf(1, map[int]layers.State{1: layers.Ready}), Needed: []layers.Point{point(1)}},
	} {
		t.Run(name, func(t *testing.T) {
			f, r := newMemReplica(t, 16*mib)
			s := admit(t, r, 1, "s")
			require.NoError(t, takeSnapshot(s, point(1)))
			require.NoError(t, s.WriteAt(t.Context(), stampBlock(2), 0, false))
			require.NoError(t, takeSnapshot(s, point(2)))
			f.Before(func(op memfs.Op) error {
				assert.NotContains(t, []string{"unlink", "punch", "exchange"}, op.Kind, op.Name)
				return nil
			})
			r.merger.line = line
			assert.Equal(t, layers.NoWait, r.merger.work())
			f.Before(nil)
			assert.Len(t, r.chainNow().Layers().Layers, 3)
			assert.EqualValues(t, 2, readByte(t, s, point(2), 0))
		})
	}
}

// The API object may have been restored in between: the next line shows the point again.
func TestNothingIsMergedByTheLineOfAnEarlierSession(t *testing.T) {
	_, r := newMemReplica(t, 16*mib)
	s := admit(t, r, 1, "s")
	for n := 1; n <= 2; n++ {
		require.NoError(t, s.WriteAt(t.Context(), stampBlock(byte(n)), 0, false))
		require.NoError(t, takeSnapshot(s, point(n)))
	}
	r.merger.line = points.Line{Line: lineOf(2, map[int]layers.State{1: layers.Deleted, 2: layers.Ready})}
	require.NoError(t, s.Close())
	s = admit(t, r, 2, "s2")
	ready := lineOf(2, map[int]layers.State{1: layers.Ready, 2: layers.Ready})
	require.NoError(t, control(s, points.OpFollow, points.Follow{Line: ready}, nil))
	assert.Equal(t, layers.NoWait, r.merger.work())
	assert.EqualValues(t, 1, readByte(t, s, point(1), 0))
}

// Lose promises that nothing is written except what was under way.
func TestAReplicaWhoseDiskWasLostTakesNoFurtherBorderAway(t *testing.T) {
	f, r := newMemReplica(t, 16*mib)
	s := admit(t, r, 1, "s")
	for n := 1; n <= 6; n++ {
		require.NoError(t, takeSnapshot(s, point(n)))
	}
	asked, release := hang(t, f, "exchange", "layers.list")
	require.NoError(t, control(s, points.OpLine, points.Line{Line: lineOf(6, nil)}, nil))
	<-asked
	r.Lose(&DiskLostError{Reason: DataDeleted})
	release()
	r.merger.end()
	assert.Len(t, r.chainNow().Layers().Layers, 6, "the one that was under way has ended")
}

// The views of a session go when its last request has ended, even if its Close did not wait that long.
func TestAViewOfASessionThatHungIsClosed(t *testing.T) {
	f := memfs.New()
	f.MkdirAll("/disk/replicas")
	clock := clocktesting.NewFakeClock(time.Unix(1000, 0))
	require.NoError(t, Create(f, crashDir, testSpec("uid-1", 16*mib)))
	r, err := Open(f, crashDir, testSpec("uid-1", 16*mib), Options{BootID: testBoot, Clock: clock})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, r.Close(context.Background())) })
	s := admit(t, r, 1, "s")
	for n := 1; n <= 2; n++ {
		require.NoError(t, s.WriteAt(t.Context(), stampBlock(byte(n)), 0, false))
		require.NoError(t, takeSnapshot(s, point(n)))
	}
	assert.EqualValues(t, 1, readByte(t, s, point(1), 0))
	hangs, err := s.begin()
	require.NoError(t, err)
	closed := make(chan error)
	go func() { closed <- s.Close() }()
	waitFor(t, clock.HasWaiters)
	clock.Step(closeWait)
	assert.ErrorIs(t, <-closed, ErrBusy)
	s.gate.leave(hangs)
	s = admit(t, r, 2, "s2")
	line := points.Line{Line: lineOf(2, map[int]layers.State{1: layers.Deleted, 2: layers.Ready})}
	require.NoError(t, control(s, points.OpLine, line, nil))
	waitFor(t, func() bool { return r.chainNow().Layers().Border(point(1)) < 0 })
}

// A view may be opened after the merger has closed the views of the border.
func TestABorderGoesWhenItsLastViewIsClosed(t *testing.T) {
	_, r := newMemReplica(t, 16*mib)
	s := admit(t, r, 1, "s")
	for n := 1; n <= 2; n++ {
		require.NoError(t, takeSnapshot(s, point(n)))
	}
	v, err := r.chainNow().View(point(1))
	require.NoError(t, err)
	line := points.Line{Line: lineOf(2, map[int]layers.State{1: layers.Deleted, 2: layers.Ready})}
	require.NoError(t, control(s, points.OpLine, line, nil))
	waitFor(t, func() bool { return r.State().MergeWaits == "NeedsReaders" })
	s.views.put(point(1), v)
	require.NoError(t, s.Close())
	waitFor(t, func() bool { return r.chainNow().Layers().Border(point(1)) < 0 && r.State().MergeWaits == "" })
}

func TestNothingIsMergedWhileASnapshotIsPrepared(t *testing.T) {
	_, r := newMemReplica(t, 16*mib)
	s := admit(t, r, 1, "s")
	require.NoError(t, takeSnapshot(s, point(1)))
	require.NoError(t, s.WriteAt(t.Context(), stampBlock(2), 0, false))
	require.NoError(t, prepare(s, point(2)))
	generation := r.chainNow().Generation()
	line := points.Line{Line: lineOf(2, map[int]layers.State{1: layers.Deleted, 2: layers.Intended})}
	require.NoError(t, control(s, points.OpLine, line, nil))
	waitFor(t, func() bool { return r.State().MergeWaits == "NeedsBarrier" })
	assert.ErrorIs(t, r.Grow(t.Context(), 32*mib), layers.ErrBusy)
	assert.Equal(t, generation, r.chainNow().Generation())
	assert.EqualValues(t, 16*mib, s.Size())
	assert.NoError(t, r.State().Failure, "a growth that waits ends no replica")

	require.NoError(t, control(s, points.OpSwitch, point(2), nil))
	require.NoError(t, control(s, points.OpSeal, point(2), nil))
	line.Line.Points[1].State = layers.Ready
	require.NoError(t, control(s, points.OpLine, line, nil))
	waitFor(t, func() bool { c := r.chainNow().Layers(); return c.Border(point(1)) < 0 && !hasMerge(c) })
	require.NoError(t, r.Grow(t.Context(), 32*mib))
	assert.EqualValues(t, 32*mib, s.Size())
	require.NoError(t, s.WriteAt(t.Context(), stampBlock(5), 32*mib-512, true))
	assert.EqualValues(t, 0, readByte(t, s, point(2), 32*mib-512), "the volume was smaller")
	assert.EqualValues(t, 2, readByte(t, s, point(2), 0))
}

// The switch takes locks that a copy holds while it writes.
func TestAMergeThatIsDueDoesNothingWhileASnapshotIsPrepared(t *testing.T) {
	f, r := newMemReplica(t, 16*mib)
	s := admit(t, r, 1, "s")
	for n := 1; n <= 2; n++ {
		require.NoError(t, s.WriteAt(t.Context(), stampBlock(byte(n)), int64(n)*mib, false))
		require.NoError(t, takeSnapshot(s, point(n)))
	}
	line := lineOf(3, map[int]layers.State{1: layers.Deleted, 2: layers.Ready, 3: layers.Intended})
	require.NoError(t, r.layers.Join(point(1), line, nil))
	require.True(t, hasMerge(r.layers.Layers()))
	require.NoError(t, prepare(s, point(3)))
	f.Before(func(op memfs.Op) error {
		assert.Fail(t, "a merge uses the disk", "%+v", op)
		return nil
	})
	r.merger.line = points.Line{Line: line}
	assert.Equal(t, layers.NeedsBarrier, r.merger.work())
	require.NoError(t, control(s, points.OpSwitch, point(3), nil))
	f.Before(nil)
	assert.Equal(t, layers.NoWait, r.merger.work())
	assert.False(t, hasMerge(r.layers.Layers()))
	require.NoError(t, control(s, points.OpSeal, point(3), nil))
	assert.EqualValues(t, 1, readByte(t, s, point(2), mib))
}

// An attempt that the object has given up before the switch keeps no merge waiting.
func TestAnAttemptThatWasGivenUpIsJoined(t *testing.T) {
	_, r := newMemReplica(t, 16*mib)
	s := admit(t, r, 1, "s")
	require.NoError(t, prepare(s, point(1)))
	require.NoError(t, s.WriteAt(t.Context(), stampBlock(1), 0, false))
	require.NoError(t, control(s, points.OpLine, points.Line{Line: lineOf(1, nil)}, nil))
	waitFor(t, func() bool { c := r.chainNow().Layers(); return len(c.Layers) == 1 })
	assert.ErrorIs(t, control(s, points.OpSwitch, point(1), nil), layers.ErrNotPrepared)
	assert.EqualValues(t, 1, readByte(t, s, layers.Point{}, 0))
	require.NoError(t, takeSnapshot(s, point(2)))
	assert.EqualValues(t, 1, readByte(t, s, point(2), 0))
}

// The next engine gives the attempt up. Its changes go to the head, so the border must never count as flushed by it.
func TestAnAttemptEndsWithItsSession(t *testing.T) {
	_, r := newMemReplica(t, 16*mib)
	s := admit(t, r, 1, "s")
	require.NoError(t, prepare(s, point(1)))
	require.NoError(t, s.Close())
	s = admit(t, r, 2, "s2")
	require.NoError(t, s.WriteAt(t.Context(), stampBlock(1), 0, false))
	assert.ErrorIs(t, control(s, points.OpSwitch, point(1), nil), layers.ErrNotPrepared)
	assert.ErrorIs(t, control(s, points.OpSeal, point(1), nil), layers.ErrNotPrepared)
	require.NoError(t, r.Grow(t.Context(), 32*mib), "no snapshot is prepared")
	require.NoError(t, control(s, points.OpFollow, points.Follow{Line: lineOf(1, nil)}, nil))
	assert.Len(t, r.chainNow().Layers().Layers, 1)
	require.NoError(t, takeSnapshot(s, point(2)))
	assert.EqualValues(t, 1, readByte(t, s, point(2), 0))
	assert.NoError(t, r.State().Failure)
}

func TestASnapshotThatIsPreparedEndsWithItsSession(t *testing.T) {
	_, r := newMemReplica(t, 16*mib)
	s := admit(t, r, 1, "s")
	require.NoError(t, takeSnapshot(s, point(1)))
	require.NoError(t, prepare(s, point(2)))
	require.NoError(t, s.Close())
	v, err := r.ViewAt(1)
	require.NoError(t, err, "no engine is connected")
	require.NoError(t, v.Close())
	require.NoError(t, r.Grow(t.Context(), 32*mib))

	s = admit(t, r, 2, "s2")
	require.NoError(t, s.WriteAt(t.Context(), stampBlock(1), 0, false))
	assert.ErrorIs(t, prepare(s, point(2)), layers.ErrBorderGiven, "the write is above its border")
	line := lineOf(2, map[int]layers.State{1: layers.Ready})
	require.NoError(t, control(s, points.OpFollow, points.Follow{Line: line}, nil))
	require.NoError(t, prepare(s, point(3)))
	require.NoError(t, s.Close())
	require.NoError(t, s.Close(), "it is safe to repeat")
}

// The engine stops waiting for a slow disk, and gives the point up, before the border is there.
func TestAPreparationThatEndsAfterItsPointWasGivenUpIsNotPending(t *testing.T) {
	f, r := newMemReplica(t, 16*mib)
	s := admit(t, r, 1, "s")
	require.NoError(t, takeSnapshot(s, point(1)))
	line := lineOf(2, map[int]layers.State{1: layers.Ready, 2: layers.Intended})
	require.NoError(t, control(s, points.OpLine, points.Line{Line: line}, nil))
	asked, release := hang(t, f, "create", "3.img")
	prepared := make(chan error)
	go func() { prepared <- prepare(s, point(2)) }()
	<-asked
	line = lineOf(2, map[int]layers.State{1: layers.Ready})
	require.NoError(t, control(s, points.OpLine, points.Line{Line: line}, nil))
	release()
	assert.ErrorIs(t, <-prepared, layers.ErrNotPrepared)
	waitFor(t, func() bool { return r.chainNow().Layers().Border(point(2)) < 0 })
	require.NoError(t, r.Grow(t.Context(), 32*mib))
	assert.EqualValues(t, 0, readByte(t, s, point(1), 0))
	require.NoError(t, s.WriteAt(t.Context(), stampBlock(3), 0, true))
	assert.EqualValues(t, 3, readByte(t, s, layers.Point{}, 0))
}

// A directory of format 1 may hold a file that looks like a leftover of a layer. It must not be removed.
func TestTheChangeOfFormatTouchesNoForeignFile(t *testing.T) {
	_, r := newMemReplica(t, 16*mib)
	s := admit(t, r, 1, "s")
	require.NoError(t, fsys.WriteNew(r.dir, "2.img", []byte("a user's copy")))
	assert.ErrorIs(t, prepare(s, point(1)), ErrForeign)
	_, err := r.dir.Lookup("2.img")
	require.NoError(t, err)
	assert.Equal(t, 1, r.State().FormatVersion)
	assert.NoError(t, r.State().Failure)
}

func TestARemovalOfLayersLeavesForeignFiles(t *testing.T) {
	f, r := newMemReplica(t, 16*mib)
	s := admit(t, r, 1, "s")
	require.NoError(t, takeSnapshot(s, point(1)))
	require.NoError(t, fsys.WriteNew(r.dir, "9.img", []byte("a number that was never given out")))
	require.NoError(t, r.Close(t.Context()))
	d, err := f.OpenDir(crashDir)
	require.NoError(t, err)
	before, err := d.Names()
	require.NoError(t, err)
	assert.ErrorIs(t, Remove(f, crashDir, "uid-1"), ErrForeign)
	_, err = Open(f, crashDir, testSpec("uid-1", 16*mib), Options{BootID: testBoot})
	assert.Equal(t, LayersTorn, ReasonOf(err))
	after, err := d.Names()
	require.NoError(t, err)
	assert.Equal(t, before, after)
	require.NoError(t, d.Unlink("9.img"))

	copied, err := OpenCopy(f, crashDir, testSpec("uid-1", 16*mib), Options{})
	require.NoError(t, err)
	v, err := copied.ViewAt(1)
	require.NoError(t, err)
	assert.EqualValues(t, 16*mib, v.Size())
	require.NoError(t, v.Close())
	require.NoError(t, copied.Close(t.Context()))
	require.NoError(t, d.Close())
	require.NoError(t, Remove(f, crashDir, "uid-1"))
	_, err = Open(f, crashDir, testSpec("uid-1", 16*mib), Options{BootID: testBoot})
	assert.Equal(t, ReplicaMissing, ReasonOf(err))
}

func TestACheckFindsThatALayerWasDeleted(t *testing.T) {
	_, r := newMemReplica(t, 16*mib)
	s := admit(t, r, 1, "s")
	require.NoError(t, takeSnapshot(s, point(1)))
	names, err := r.heldNames(r.chainNow())
	require.NoError(t, err)
	held := map[string]bool{}
	for _, n := range names {
		held[n.name] = n.held != (fsys.ID{})
	}
	assert.Equal(t, map[string]bool{
		intentName: true, metaName: false, "layers.list": false, dataName: false, "2.img": true,
	}, held)
	assert.False(t, r.isGoneByMerge("2.img"))
	assert.True(t, r.isGoneByMerge("3.img"))
	assert.False(t, r.isGoneByMerge(metaName))
}

// availableFS says how much space is left.
type availableFS struct {
	fsys.FS
	available *atomic.Int64
}

type availableDir struct {
	fsys.Dir
	available *atomic.Int64
}

func (f availableFS) OpenDir(name string) (fsys.Dir, error) {
	d, err := f.FS.OpenDir(name)
	return availableDir{d, f.available}, err
}

func (d availableDir) OpenDir(name string) (fsys.Dir, error) {
	in, err := d.Dir.OpenDir(name)
	return availableDir{in, d.available}, err
}

func (d availableDir) AvailableBytes() (int64, error) { return d.available.Load(), nil }

func TestBelowTheReserveNoSnapshotStartsAndNoMergeCopies(t *testing.T) {
	mem := memfs.New()
	mem.MkdirAll("/disk/replicas")
	f := availableFS{mem, &atomic.Int64{}}
	f.available.Store(1 << 40)
	spec, clock := testSpec("uid-1", 16*mib), clocktesting.NewFakeClock(time.Unix(1000, 0))
	require.NoError(t, Create(f, crashDir, spec))
	r, err := Open(f, crashDir, spec, Options{BootID: testBoot, Reserve: 1 << 30, Clock: clock})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, r.Close(context.Background())) })
	s := admit(t, r, 1, "s")
	for n := 1; n <= 2; n++ {
		require.NoError(t, s.WriteAt(t.Context(), stampBlock(byte(n)), int64(n)*mib, false))
		require.NoError(t, takeSnapshot(s, point(n)))
	}
	f.available.Store(1<<30 - 1)
	assert.True(t, stateOf(t, s).NoRoom)
	err = prepare(s, point(3))
	assert.ErrorIs(t, err, layers.ErrNoRoom)
	assert.ErrorIs(t, err, syscall.ENOSPC)
	line := points.Line{Line: lineOf(3, map[int]layers.State{1: layers.Deleted, 2: layers.Ready})}
	require.NoError(t, control(s, points.OpLine, line, nil))
	waitFor(t, func() bool { return r.State().MergeWaits == "NeedsSpace" && clock.HasWaiters() })
	assert.True(t, hasMerge(r.chainNow().Layers()))
	assert.Less(t, r.chainNow().Layers().Border(point(1)), 0, "the list needs no space")
	f.available.Store(1 << 40)
	clock.Step(spaceRetry)
	waitFor(t, func() bool { return r.State().MergeWaits == "" && !hasMerge(r.chainNow().Layers()) })
	assert.EqualValues(t, 1, readByte(t, s, point(2), mib))
}

func TestAFullDiskRefusesTheFirstSnapshotAndNothingElse(t *testing.T) {
	f, r := newMemReplica(t, 16*mib)
	s := admit(t, r, 1, "s")
	require.NoError(t, s.WriteAt(t.Context(), stampBlock(1), 0, false))
	f.Fill()
	assert.ErrorIs(t, prepare(s, point(1)), syscall.ENOSPC)
	assert.Equal(t, 1, r.State().FormatVersion)
	require.NoError(t, s.WriteAt(t.Context(), stampBlock(2), 0, true))
	assert.NoError(t, r.State().Failure)
	names, err := r.dir.Names()
	require.NoError(t, err)
	assert.Equal(t, []string{dataName, intentName, metaName, metaTempName}, names)
}

func TestAnErrorOfTheDiskInAMergeEndsTheReplica(t *testing.T) {
	f, r := newMemReplica(t, 16*mib)
	s := admit(t, r, 1, "s")
	for n := 1; n <= 2; n++ {
		require.NoError(t, s.WriteAt(t.Context(), stampBlock(byte(n)), int64(n)*mib, false))
		require.NoError(t, takeSnapshot(s, point(n)))
	}
	f.Before(func(op memfs.Op) error {
		if op.Kind == "datasync" {
			return syscall.EIO
		}
		return nil
	})
	line := points.Line{Line: lineOf(2, map[int]layers.State{1: layers.Deleted, 2: layers.Ready})}
	require.NoError(t, control(s, points.OpLine, line, nil))
	<-s.Done()
	f.Before(nil)
	assert.ErrorIs(t, r.State().Failure, syscall.EIO)
	assert.ErrorIs(t, s.Flush(t.Context()), syscall.ESHUTDOWN)
}

// The limit for data that is not on the disk holds for all files of the layers together.
func TestWritesToLayersWaitForRoom(t *testing.T) {
	f, r, s := boundedReplica(t)
	pace := r.out.pace
	require.NoError(t, s.WriteAt(t.Context(), make([]byte, 512), 0, false))
	require.NoError(t, prepare(s, point(1)))
	assert.EqualValues(t, 512, r.out.unsettled(), "bytes that the flat file had are still to be written out")
	require.NoError(t, control(s, points.OpSwitch, point(1), nil))
	require.NoError(t, control(s, points.OpSeal, point(1), nil))
	assert.Zero(t, r.out.unsettled())
	asked, release := hang(t, f, "writeback", "2.img")
	for i := range int64(4) {
		require.NoError(t, s.WriteAt(t.Context(), stampBlock(1), i*4096, false), "it writes a whole block")
	}
	<-asked
	assert.ErrorIs(t, s.WriteAt(expired(), stampBlock(1), 0, false), context.Canceled, "a write beyond the limit")
	assert.Equal(t, int64(16<<10), r.out.unsettled())
	require.NoError(t, s.ReadAt(t.Context(), make([]byte, 4096), 0))
	release()
	require.NoError(t, s.WriteAt(t.Context(), stampBlock(2), 0, false))
	require.NoError(t, s.Flush(t.Context()))
	assert.Zero(t, r.out.unsettled())
	require.NoError(t, r.Close(t.Context()))
	assert.Zero(t, pace.busy.Load(), "replicas that share the limit")
}

// A caller that waits for room in the flat file is let in when the format changes, and writes to the chain.
func TestAWriterThatWaitsForRoomIsLetInByTheChangeOfFormat(t *testing.T) {
	f, r, s := boundedReplica(t)
	asked, release := hang(t, f, "writeback", dataName)
	for i := range int64(4) {
		require.NoError(t, s.WriteAt(t.Context(), make([]byte, 4096), i*4096, false))
	}
	<-asked
	flatFile, letIn, prepared := r.limit(), make(chan error), make(chan error)
	go func() { letIn <- flatFile.awaitRoom(context.Background(), nil) }()
	go func() { prepared <- prepare(s, point(1)) }()
	require.NoError(t, <-letIn) // the write-out still hangs
	assert.NotNil(t, r.chainNow())
	assert.False(t, r.limit().hasRoom(), "the chain counts what the flat file had not written out")
	release() // the earlier opening is closed when its write-out has ended
	require.NoError(t, <-prepared)
	require.NoError(t, s.WriteAt(t.Context(), stampBlock(7), 8*mib, false))
	require.NoError(t, control(s, points.OpSwitch, point(1), nil))
	require.NoError(t, control(s, points.OpSeal, point(1), nil))
	assert.EqualValues(t, 7, readByte(t, s, point(1), 8*mib))
	assert.NoError(t, r.State().Failure)
}

// Each unsealed file has an opening that is asked after reads.
func TestAFailedWriteOutOfAnyUnsealedFileEndsTheReplica(t *testing.T) {
	for _, name := range []string{dataName, "2.img"} {
		t.Run(name, func(t *testing.T) {
			f, r := newMemReplica(t, 16*mib)
			s := admit(t, r, 1, "s")
			require.NoError(t, s.WriteAt(t.Context(), stampBlock(1), 0, false))
			require.NoError(t, prepare(s, point(1)))
			require.NoError(t, control(s, points.OpSwitch, point(1), nil))
			require.NoError(t, s.WriteAt(t.Context(), stampBlock(2), 8*mib, false))
			require.NoError(t, s.ReadAt(t.Context(), make([]byte, 512), 0))
			f.LoseUnsynced(name)
			assert.ErrorIs(t, s.ReadAt(t.Context(), make([]byte, 512), 4*mib), syscall.EIO)
			assert.ErrorIs(t, r.State().Failure, syscall.EIO)
			assert.False(t, r.State().CacheKept)
			assert.ErrorIs(t, s.Flush(t.Context()), syscall.ESHUTDOWN)
		})
	}
}

func TestAChainCountsWhatTheMetadataSays(t *testing.T) {
	for _, tc := range []struct {
		name string
		opts Options
		do   func(f *memfs.FS) // before the next opening
		kept bool
	}{
		{"same boot, same mount", Options{BootID: testBoot}, func(*memfs.FS) {}, true},
		{"same boot, another mount", Options{BootID: testBoot}, (*memfs.FS).MountAgain, false},
		{"same boot, the mount is not known", Options{BootID: testBoot}, (*memfs.FS).ForgetMounts, false},
		{"same boot, the host knows of an error", Options{BootID: testBoot, Distrust: true}, func(*memfs.FS) {}, false},
		{"another boot", Options{BootID: otherBoot}, func(*memfs.FS) {}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f, r := newMemReplica(t, 16*mib)
			s := admit(t, r, 1, "s")
			require.NoError(t, takeSnapshot(s, point(1)))
			require.NoError(t, s.WriteAt(t.Context(), stampBlock(1), 0, true))
			require.NoError(t, s.WriteAt(t.Context(), stampBlock(2), 8*mib, false))
			f.Kill()
			r.merger.end()
			tc.do(f)
			again, err := Open(f, crashDir, testSpec("uid-1", 16*mib), tc.opts)
			require.NoError(t, err)
			defer again.Close(t.Context())
			assert.Equal(t, tc.kept, again.State().CacheKept)
			if tc.kept {
				assert.Equal(t, !tc.kept, again.layers.Trust().Distrust)
			}
			s = admit(t, again, 2, "s2")
			assert.EqualValues(t, 1, readByte(t, s, layers.Point{}, 0))
			if tc.kept {
				assert.EqualValues(t, 2, readByte(t, s, layers.Point{}, 8*mib), "an acknowledged write")
			}
		})
	}
}

// A tool on the host, or in another container, reads the directory through another mount. The cache has lost nothing.
func TestAReaderThroughAnotherMountSeesWhatWasAcknowledged(t *testing.T) {
	for name, do := range map[string]func(*memfs.FS){
		"same mount": func(*memfs.FS) {}, "another mount": (*memfs.FS).MountAgain, "the mount is not known": (*memfs.FS).ForgetMounts,
	} {
		t.Run(name, func(t *testing.T) {
			f, r := newMemReplica(t, 16*mib)
			s := admit(t, r, 1, "s")
			require.NoError(t, takeSnapshot(s, point(1)))
			require.NoError(t, s.WriteAt(t.Context(), stampBlock(2), 8*mib, false))
			f.Kill()
			r.merger.end()
			do(f)
			reader, err := OpenCopy(f, crashDir, testSpec("uid-1", 16*mib), Options{BootID: testBoot})
			require.NoError(t, err)
			defer reader.Close(t.Context())
			v, err := reader.View()
			require.NoError(t, err)
			defer v.Close()
			b := make([]byte, 512)
			require.NoError(t, v.ReadAt(t.Context(), b, 8*mib))
			assert.EqualValues(t, 2, b[0], "an acknowledged write")
		})
	}
}

// A flush covers no write that was still under way when the flush started.
func TestAWriteDuringAFlushIsNotSettledByIt(t *testing.T) {
	f, r := newMemReplica(t, 16*mib)
	s := admit(t, r, 1, "s")
	require.NoError(t, takeSnapshot(s, point(1)))
	require.NoError(t, s.WriteAt(t.Context(), stampBlock(1), 0, true))
	asked, release := hang(t, f, "write", "2.img")
	written := make(chan error)
	go func() { written <- s.WriteAt(context.Background(), stampBlock(2), 0, false) }()
	<-asked
	require.NoError(t, s.Flush(t.Context()))
	release()
	require.NoError(t, <-written)
	f.LoseUnsynced("2.img")
	f.Evict("2.img")
	assert.ErrorIs(t, s.ReadAt(t.Context(), make([]byte, 512), 0), syscall.EIO, "the earlier content is on the disk")
}

// The error of a merge may pass: for example, the process had too many open files.
func TestAMergeThatFailedIsTriedAgain(t *testing.T) {
	f := memfs.New()
	f.MkdirAll("/disk/replicas")
	clock := clocktesting.NewFakeClock(time.Unix(1000, 0))
	require.NoError(t, Create(f, crashDir, testSpec("uid-1", 16*mib)))
	r, err := Open(f, crashDir, testSpec("uid-1", 16*mib), Options{BootID: testBoot, Clock: clock})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, r.Close(context.Background())) })
	s := admit(t, r, 1, "s")
	<-r.merger.wake // by the admission
	slept := make(chan bool, 1)
	go func() { slept <- r.merger.sleep(retryAfter[layers.NeedsRepair]) }()
	waitFor(t, clock.HasWaiters)
	clock.Step(repairRetry)
	assert.True(t, <-slept)
	assert.NoError(t, s.Close())
}
