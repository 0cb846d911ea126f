package replica

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys/memfs"
)

var allOfData = fsys.Range{Length: 1 << 40}

// readAll returns the data of a replica through a session.
func readAll(t *testing.T, s *Session) []byte {
	t.Helper()
	b := make([]byte, s.Size())
	require.NoError(t, s.ReadAt(t.Context(), b, 0))
	return b
}

// The part of the data that stays cached is either dropped or made durable: later reads return the same content.
func TestDataThatStaysCachedIsMadeDurable(t *testing.T) {
	for _, power := range []bool{false, true} {
		f, r := newMemReplica(t, 16*mib)
		s := admit(t, r, 1, "s")
		require.NoError(t, s.WriteAt(t.Context(), bytes.Repeat([]byte{1}, 4096), 0, true))
		require.NoError(t, s.WriteAt(t.Context(), bytes.Repeat([]byte{2}, 4096), 0, false))
		f.FailSync(dataName, 1)
		require.ErrorIs(t, s.Flush(t.Context()), syscall.EIO)
		f.Kill()
		f.KeepCached(dataName, fsys.Range{Off: 1024, Length: 512})
		r = openReplica(t, f, memDir, testSpec("uid-1", 16*mib), testBoot)
		if power {
			f.Crash(rand.New(rand.NewPCG(1, 0)))
			r = openReplica(t, f, memDir, testSpec("uid-1", 16*mib), otherBoot)
		}
		s = admit(t, r, 2, "s2")
		f.Evict(dataName)
		got := readAll(t, s)
		assert.Equal(t, byte(1), got[512], "it was dropped")
		assert.Equal(t, byte(2), got[1024], "it stayed cached, and was written again")
		assert.Equal(t, byte(1), got[1536], "it was dropped")
	}
}

func TestAReplicaOfWhichAPartStaysCachedIsRefusedWhereThatCannotBeWritten(t *testing.T) {
	spec := testSpec("uid-1", 16*mib)
	f, r := newMemReplica(t, 16*mib)
	lostBlock(t, f, r)
	f.Kill()
	f.KeepCached(dataName, allOfData)
	for name, fails := range map[string]func(op memfs.Op) error{
		"the write": func(op memfs.Op) error {
			if op.Kind == "writethrough" && op.Name == dataName {
				return syscall.EINVAL
			}
			return nil
		},
		"the sync": func() func(op memfs.Op) error {
			wrote := false
			return func(op memfs.Op) error {
				if op.Name == dataName {
					wrote = wrote || op.Kind == "writethrough"
					if wrote && op.Kind == "datasync" {
						return syscall.EIO
					}
				}
				return nil
			}
		}(),
	} {
		f.Before(fails)
		_, err := Open(f, memDir, spec, Options{BootID: testBoot})
		f.Before(nil)
		require.ErrorIs(t, err, errStaysCached, name)
		var refused *RefusedError
		require.ErrorAs(t, err, &refused)
		assert.Equal(t, IOError, refused.Reason)
		f.LoseUnsynced(dataName) // what the failed attempt wrote
	}
	r = openReplica(t, f, memDir, spec, testBoot)
	s := admit(t, r, 2, "s2")
	expectKept(t, s, false)
	assert.Equal(t, stampBlock(2), readBlock(t, s))
	f.Evict(dataName)
	assert.Equal(t, stampBlock(2), readBlock(t, s))
}

func TestAnOpeningAfterAnOrderlyCloseWritesNothing(t *testing.T) {
	f, r := newMemReplica(t, 16*mib)
	s := admit(t, r, 1, "s")
	require.NoError(t, s.WriteAt(t.Context(), stampBlock(1), 0, true))
	clearMarks(t, s, 0)
	require.NoError(t, s.Close())
	require.NoError(t, r.Close(t.Context()))
	f.KeepCached(dataName, allOfData)
	f.Before(func(op memfs.Op) error {
		if op.Name == dataName && op.Kind != "open" {
			return fmt.Errorf("%s of the data", op.Kind)
		}
		return nil
	})
	defer f.Before(nil)
	openReplica(t, f, memDir, testSpec("uid-1", 16*mib), testBoot)
}

func TestOnlyMarkedRegionsAreAskedAbout(t *testing.T) {
	const size = 64 * mib
	_, r := newMemReplica(t, size)
	step := r.regionBytes
	for _, tc := range []struct {
		name   string
		marked []int64
		want   []fsys.Range
	}{
		{"no mark", nil, []fsys.Range{}},
		{"one", []int64{1}, []fsys.Range{{Off: step, Length: step}}},
		{"one after another", []int64{0, 1, 3}, []fsys.Range{{Length: 2 * step}, {Off: 3 * step, Length: step}}},
		{"the last", []int64{size/step - 1}, []fsys.Range{{Off: size - step, Length: step}}},
	} {
		image := newIntentImage("uid-1", step, size/step)
		for _, i := range tc.marked {
			image.set(i, true)
		}
		r.intents = newIntents(r.imap, image, step)
		assert.Equal(t, tc.want, r.markedRanges(), tc.name)
	}
	image := newIntentImage("uid-1", step, size/step+2) // of a growth that was interrupted
	image.set(size/step, true)
	r.intents = newIntents(r.imap, image, step)
	assert.Empty(t, r.markedRanges(), "a mark beyond the replica's size")
}

// A disk that is slow, and has much to write out, answers again and again.
func TestAnOpeningReportsProgressForEachPieceThatIsWrittenOut(t *testing.T) {
	const size = 32 * mib
	f, r := newMemReplica(t, size)
	s := admit(t, r, 1, "s")
	for off := int64(0); off < size; off += mib {
		require.NoError(t, s.WriteAt(t.Context(), stampBlock(1), off, false))
	}
	f.Kill()
	pieces, reports, since, most := 0, 0, 0, 0
	f.Before(func(op memfs.Op) error {
		if op.Name == dataName {
			pieces++
			since++
			most = max(most, since)
		}
		return nil
	})
	r, err := Open(f, memDir, testSpec("uid-1", size), Options{BootID: testBoot, OnProgress: func() {
		reports++
		since = 0
	}})
	f.Before(nil)
	require.NoError(t, err)
	defer r.Close(t.Context())
	assert.GreaterOrEqual(t, reports, size/writePiece)
	assert.LessOrEqual(t, most, 2, "calls of the disk without a report: a piece, or the sync and the drop")
}

// This test checks the rule that only marked regions are asked about. It runs random histories of one boot: writes,
// zeroes, flushes, marks that are cleared as an engine does it, write-outs that fail in syncs and between them, kills
// and closings. Parts of the data are in use at each opening. After each opening nothing is cached that the disk lacks,
// marked or not.
func TestAnOpeningLeavesOnlyDataOfTheDiskInTheCache(t *testing.T) {
	writtenAgain := 0
	for seed := range uint64(300) {
		h := newCacheHistory(t, seed)
		for range 80 {
			h.step()
		}
		writtenAgain += h.writtenAgain
		_ = errors.Join(h.s.Close(), h.r.Close(t.Context()))
	}
	assert.Greater(t, writtenAgain, 100, "openings that wrote a part again")
}

const (
	historyBytes  = 32 * mib
	clusters      = 4 // of blocks, each in a region of its own
	clusterBlocks = 4
	blockBytes    = 4096
)

// cacheHistory is a replica without an engine; the test acts as the engine.
type cacheHistory struct {
	t    *testing.T
	rng  *rand.Rand
	fs   *memfs.FS
	spec Spec

	r          *Replica
	s          *Session
	generation int64
	flushed    map[int64]bool // regions that were not changed since a successful flush

	writtenAgain int // openings that wrote a part of the data again
}

func newCacheHistory(t *testing.T, seed uint64) *cacheHistory {
	h := &cacheHistory{
		t: t, rng: rand.New(rand.NewPCG(seed, 0)), fs: memfs.New(), spec: testSpec("uid-1", historyBytes), flushed: map[int64]bool{},
	}
	h.fs.MkdirAll("/disk/replicas")
	require.NoError(t, Create(h.fs, memDir, h.spec))
	for range 1 + h.rng.IntN(4) {
		h.fs.KeepCached(dataName, fsys.Range{Off: h.block(), Length: (1 + h.rng.Int64N(clusterBlocks)) * blockBytes})
	}
	h.open()
	return h
}

// block returns the offset of one of a few blocks, so that several changes concern the same block.
func (h *cacheHistory) block() int64 {
	return h.rng.Int64N(clusters)*(historyBytes/clusters) + h.rng.Int64N(clusterBlocks)*blockBytes
}

// open opens the replica, and makes the kernel drop all of its data: this must not change any byte.
func (h *cacheHistory) open() {
	wrote := false
	h.fs.Before(func(op memfs.Op) error {
		wrote = wrote || op.Name == dataName && op.Kind == "writethrough"
		return nil
	})
	var err error
	for range 4 { // a sync that must fail makes an opening fail
		if h.r, err = Open(h.fs, memDir, h.spec, Options{BootID: testBoot}); err == nil {
			break
		}
	}
	h.fs.Before(nil)
	require.NoError(h.t, err)
	if wrote {
		h.writtenAgain++
	}
	h.generation++
	h.s = admit(h.t, h.r, h.generation, "s")
	shown := h.read()
	h.fs.Evict(dataName)
	require.True(h.t, bytes.Equal(shown, h.read()), "the cache had something that the disk lacks")
	clear(h.flushed)
}

// read returns the content of all blocks that the history uses.
func (h *cacheHistory) read() []byte {
	all := make([]byte, clusters*clusterBlocks*blockBytes)
	for i := range int64(clusters) {
		part := all[i*clusterBlocks*blockBytes : (i+1)*clusterBlocks*blockBytes]
		require.NoError(h.t, h.s.ReadAt(h.t.Context(), part, i*historyBytes/clusters))
	}
	return all
}

// step does one random operation. If the replica has failed, step closes it and opens it again.
func (h *cacheHistory) step() {
	off, file := h.block(), []string{dataName, intentName}[h.rng.IntN(2)]
	switch h.rng.IntN(14) {
	case 0, 1, 2, 3:
		delete(h.flushed, off/h.r.regionBytes)
		_ = h.s.WriteAt(h.t.Context(), bytes.Repeat([]byte{byte(h.rng.IntN(255) + 1)}, blockBytes), off, false)
	case 4:
		delete(h.flushed, off/h.r.regionBytes)
		_ = h.s.Zero(h.t.Context(), off, 1024, 0)
	case 5, 6:
		h.flush()
	case 7, 8:
		h.clear()
	case 9:
		h.fs.LoseUnsynced(file)
	case 10:
		h.fs.FailSync(file, 1+h.rng.IntN(2))
	case 11:
		if err := h.r.out.File.WriteBack(); err != nil { // another call of the same opening learns of it first
			h.flush() // and that call has not ended the replica yet
			h.clear()
			h.r.fail(err)
		}
	case 12:
		h.reopen(h.fs.Kill)
	case 13:
		if h.rng.IntN(2) == 0 {
			h.reopen(func() { _ = errors.Join(h.s.Close(), h.r.Close(h.t.Context())) })
		}
	}
	if h.r.State().Failure != nil {
		h.reopen(func() { _ = errors.Join(h.s.Close(), h.r.Close(h.t.Context())) })
	}
}

func (h *cacheHistory) reopen(end func()) {
	end()
	h.open()
}

func (h *cacheHistory) flush() {
	if h.s.Flush(h.t.Context()) == nil {
		for _, i := range h.r.intents.marked() {
			h.flushed[i] = true
		}
	}
}

// clear clears some marks.
func (h *cacheHistory) clear() {
	regions := []int64{}
	for _, i := range h.r.intents.marked() {
		if h.flushed[i] && h.rng.IntN(3) > 0 {
			regions = append(regions, i)
		}
	}
	if len(regions) > 0 {
		_, _ = h.s.Control(h.t.Context(), membership.OpClearIntents, regionsPayload(h.t, regions...))
	}
}
