package mounts

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
)

// noticeLimit is the time within which the loss of a disk must be known.
const noticeLimit = 5 * time.Second

// live is a disk with a replica that a writer writes to.
type live struct {
	*volatileDisk
	content    *content
	writer     *writer
	churn      *churn
	generation int64
	lostAfter  time.Duration // in this round; 0 if it is not lost
}

func (l *live) h() *host { return l.host }

// scene is two disks and an instance manager.
type scene struct {
	t       testing.TB
	h       *host
	manager *manager
	disks   []*live
	empty   string // device of a file system that is not a disk
	foreign string // device of another disk

	// State of one round.
	began    time.Time
	refused  bool // the kernel refused to remove the disk
	remakes  bool // the replica was lost with its file system
	covering string
	covered  usage

	slowest time.Duration
	writes  int64
	made    int64
}

func newScene(t testing.TB) *scene {
	s := &scene{t: t, h: newHost(t)}
	s.h.point(elsewhere)
	s.h.point(other)
	for number, fsType := range []string{"ext4", "xfs"} {
		s.disks = append(s.disks, &live{volatileDisk: s.h.newDisk(number+1, fsType), content: newContent(uint64(number + 1))})
		s.h.point(fmt.Sprintf("/mnt/p%d.new/disk", number+1))
	}
	_, s.empty = s.h.newImage("empty", "ext4")
	_, s.foreign = s.h.newImage("foreign", "ext4")
	f := &volatileDisk{host: s.h, path: elsewhere, fsType: "ext4", device: s.foreign, uuid: "d15c0000-0000-4000-8000-0000000000ff"}
	f.mount()
	f.prepare()
	s.h.clear(elsewhere)
	s.manager = newManager(s.h)
	for _, l := range s.disks {
		s.manager.create(l.spec())
		s.resume(l)
	}
	t.Cleanup(func() {
		for _, l := range s.disks {
			_ = s.pause(l)
		}
	})
	return s
}

func (s *scene) other(l *live) *live { return s.disks[1-slices.Index(s.disks, l)] }

// resume serves a disk's replica, checks it, and starts to write to it.
func (s *scene) resume(l *live) {
	s.t.Helper()
	s.manager.serve(l.spec())
	l.generation++
	c, err := s.manager.dial(l.spec(), l.generation)
	require.NoError(s.t, err)
	assert.NoError(s.t, l.content.check(c), l.path)
	l.writer = startWriter(c, l.content, uint64(l.generation))
	l.churn = startChurn(s.manager, l.extra())
	require.NoError(s.t, l.writer.goesOn(20))
}

// pause stops the writers of a disk, and returns why they had stopped before.
func (s *scene) pause(l *live) error {
	if l.writer == nil {
		return nil
	}
	l.churn.stop()
	err := l.writer.stop()
	s.writes += l.writer.acked.Load()
	s.made += l.churn.made.Load()
	l.writer = nil
	return err
}

// lost waits until a replica is shown as failed and its writer has stopped.
func (s *scene) lost(l *live) {
	s.t.Helper()
	if l.lostAfter > 0 {
		return
	}
	_, err := s.manager.until("loss of disk "+l.path, noticeLimit, func(st *proto.State) bool {
		r := replicaOf(st, l.name)
		return r.GetPhase() == proto.Phase_PHASE_ERROR && (r.GetReason() == "DiskUnmounted" || r.GetReason() == "DiskReplaced") &&
			strings.Contains(r.GetMessage(), l.path)
	})
	require.NoError(s.t, err)
	l.lostAfter = time.Since(s.began)
	s.slowest = max(s.slowest, l.lostAfter)
	select {
	case <-l.writer.done:
	case <-time.After(noticeLimit):
		s.t.Fatalf("%s: its writer was not told", l.path)
	}
}

// isRefused tries every call that could write a byte to the place of the disk.
func (s *scene) isRefused(l *live) {
	s.t.Helper()
	ctx := context.Background()
	r, err := s.manager.ReplicaStart(ctx, l.spec())
	require.NoError(s.t, err, "%s: started without its disk: %v", l.path, r)
	assert.Equal(s.t, proto.Phase_PHASE_ERROR, r.GetPhase(), "%s: started without its disk: %v", l.path, r)
	assert.True(s.t, isRefusal(r.GetReason()), "%s: started without its disk: %v", l.path, r)
	_, err = s.manager.ReplicaCreate(ctx, l.spec())
	assert.True(s.t, isRefusal(reason(err)), "%s: made without its disk: %v", l.path, err)
	_, err = s.manager.ReplicaStop(ctx, &proto.ReplicaRef{Name: l.name})
	assert.NoError(s.t, err, l.path)
	_, err = s.manager.ReplicaRemove(ctx, l.spec())
	assert.True(s.t, isRefusal(reason(err)), "%s: removed without its disk: %v", l.path, err)
}

func isRefusal(reason string) bool { return reason == "DiskMissing" || reason == "DiskMismatch" }

// isUndisturbed checks that the other disk's replica continues, and that it received nothing from the first one.
func (s *scene) isUndisturbed(l *live, what string) {
	s.t.Helper()
	assert.NoError(s.t, l.writer.goesOn(5), "%s: the other disk", what)
	s.hasOnlyItsOwn(l, what)
}

func (s *scene) hasOnlyItsOwn(l *live, what string) {
	s.t.Helper()
	names, err := os.ReadDir(filepath.Join(l.at(l.path), "replicas"))
	require.NoError(s.t, err)
	for _, n := range names {
		assert.Contains(s.t, n.Name(), l.name, "%s: on %s", what, l.path)
	}
}

// round takes a disk away and brings it back.
func (s *scene) round(a action, l *live) {
	s.t.Helper()
	s.refused, s.remakes = false, false
	for _, d := range s.disks {
		d.lostAfter = 0
	}
	beneath := filepath.Join(s.h.base, "mnt")
	before := usageOf(s.t, beneath)
	gone, rest := []*live{l}, []*live{s.other(l)}
	if a.both {
		gone, rest = s.disks, nil
	}
	s.began = time.Now()
	a.take(s, l)
	require.False(s.t, s.refused && !a.mayBeRefused, "%s: refused", a.name)
	switch {
	case s.refused:
		require.NoError(s.t, l.writer.goesOn(20))
	case a.kills:
		rest = nil
		for _, d := range s.disks {
			_ = s.pause(d)
		}
		s.isRefused(l)
	default:
		for _, d := range gone {
			s.lost(d)
			if !a.isDisk {
				s.isRefused(d)
			}
		}
	}
	for _, d := range rest {
		s.isUndisturbed(d, a.name)
	}
	if !s.refused {
		s.giveBack(a, l, gone)
	}
	assert.Empty(s.t, before.differs(usageOf(s.t, beneath)), "%s of %s", a.name, l.path)
}

// giveBack mounts disks at their paths, and serves them again.
func (s *scene) giveBack(a action, l *live, gone []*live) {
	s.t.Helper()
	for _, d := range gone {
		_ = s.pause(d)
	}
	s.uncover(a.name)
	if a.undo != nil {
		a.undo(s, l)
	}
	for _, d := range gone {
		s.h.clear(d.path)
	}
	for _, d := range gone {
		d.isFree()
		d.mount()
		if s.remakes {
			s.manager.create(d.spec())
		}
	}
	if a.kills {
		gone = s.disks
	}
	for _, d := range gone {
		s.hasOnlyItsOwn(d, a.name)
		s.resume(d)
	}
}

func TestNothingIsEverWrittenBeneathADiskThatIsGone(t *testing.T) {
	need(t)
	runs := int64(20)
	if os.Getenv("LONG") != "" {
		runs = 190
	}
	runs = number(t, "MOUNTS_RUNS", runs)
	seed := uint64(number(t, "MOUNTS_SEED", time.Now().UnixNano()))
	t.Logf("MOUNTS_SEED=%d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	s := newScene(t)
	var order []action
	refusals := 0
	for i := range runs {
		if len(order) == 0 { // every action once before any is repeated
			order = slices.Clone(actions)
			rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		}
		a, l := order[0], s.disks[rng.IntN(len(s.disks))]
		order = order[1:]
		began := time.Now()
		s.round(a, l)
		t.Logf("run %d: %s, %s: refused %t, noticed after %v, took %v", i, l.fsType, a.name, s.refused, l.lostAfter, time.Since(began).Round(time.Millisecond))
		if s.refused {
			refusals++
		}
		if t.Failed() {
			t.FailNow()
		}
	}
	for _, l := range s.disks {
		assert.NoError(t, s.pause(l), "%s: its writer ended", l.path)
	}
	t.Logf("%d runs, %d of them refused by the kernel; noticed after %v at most; %d writes acknowledged, %d replicas made meanwhile",
		runs, refusals, s.slowest, s.writes, s.made)
	assert.GreaterOrEqual(t, s.writes, 50*runs)
	assert.GreaterOrEqual(t, s.made, runs, "too little happened for this to prove anything")
}
