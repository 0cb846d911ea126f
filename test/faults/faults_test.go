package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	nodeCount   = 3
	blockCount  = 9
	blockBytes  = 4 * fsBlockBytes
	regionBytes = 4 << 20          // of the intent map
	regionCount = 5                // of a volume at first; the last one is not whole
	patience    = 40 * time.Second // an engine waits 10 s for a replica at its start
	// convergence is how long a volume may take to become whole. A rebuild fails if one answer of hundreds takes longer
	// than slowAfter. On a busy machine this happens in many rebuilds.
	convergence = 4 * time.Minute
	slowHistory = 3 * time.Second // a longer history is logged
)

var secret = bytes.Repeat([]byte("s"), 32)

func TestMain(m *testing.M) {
	if dir := os.Getenv(envDir); dir != "" {
		if err := serveNode(dir, os.Getenv(envImage)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// lanes is how many sets of processes run histories at once: a history waits more than it computes.
const lanes = 2

// outcome is the outcome of the histories so far.
type outcome struct {
	next atomic.Int64 // the next history that no lane has started
	bad  atomic.Bool  // a history has failed, so no other one starts

	mu                           sync.Mutex
	total                        tally // guarded by mu
	acknowledged, unknown, reads int   // guarded by mu
}

// TestNoAcknowledgedWriteIsLostWhateverBreaks runs one history after the other on the same three processes, in each
// lane.
func TestNoAcknowledgedWriteIsLostWhateverBreaks(t *testing.T) {
	if testing.Short() {
		t.Skip("histories under faults take seconds each: not with -short")
	}
	seeds := seedsToRun(t)
	hasDisks := canMount()
	if !hasDisks {
		t.Log("no loop devices here: disks are plain directories, which cannot be full or broken")
	}
	t.Cleanup(func() { // after the processes have exited
		err := awaitNoDevices(ownVolumes())
		if canHaveDevices() {
			assert.NoError(t, err, "devices of processes that have ended")
		}
	})
	o := &outcome{}
	var running sync.WaitGroup
	for range min(lanes, len(seeds)) {
		nodes, news := startCluster(t, hasDisks)
		running.Go(func() {
			for !o.bad.Load() && !t.Failed() {
				i := int(o.next.Add(1)) - 1
				if i >= len(seeds) {
					return
				}
				o.runHistory(t, i, seeds[i], nodes, news)
			}
		})
	}
	running.Wait()
	if !t.Failed() {
		o.judge(t, len(seeds), hasDisks)
	}
}

// runHistory runs history i and counts the events in it.
func (o *outcome) runHistory(t *testing.T, i int, seed uint64, nodes []*node, news chan struct{}) {
	began := time.Now()
	v, plan, err := runHistory(fmt.Sprintf("%s%d", ownVolumes(), i), seed, nodes, news)
	if v != nil {
		assert.NoError(t, v.countLogged(), "history %d: read the logs", i)
		o.count(v)
	}
	if took := time.Since(began); took > slowHistory {
		t.Logf("history %d took %v, plan: %v, FAULT_SEED=%d", i, took.Round(time.Millisecond), plan, seed)
	}
	if err != nil {
		o.bad.Store(true)
		for _, n := range nodes {
			t.Logf("node %d:\n%s", n.number, n.logTail())
		}
		t.Errorf("history %d: %v\nplan: %v\nFAULT_SEED=%d repeats the plan", i, err, plan, seed)
	}
}

func (o *outcome) count(v *volume) {
	acknowledged, unknown, reads := v.history.counts()
	v.mu.Lock()
	seen := v.seen
	v.mu.Unlock()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.total.add(seen)
	o.acknowledged, o.unknown, o.reads = o.acknowledged+acknowledged, o.unknown+unknown, o.reads+reads
}

// judge fails the test if too few events happened in n histories.
func (o *outcome) judge(t *testing.T, n int, hasDisks bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	total := o.total
	t.Logf("%d histories: %d writes acknowledged, %d not, %d reads; %v", n, o.acknowledged, o.unknown, o.reads, total)
	switch {
	case n >= 20 && (total.starts < n+n/10 || total.rebuilds < n/4 || o.acknowledged < 20*n || o.unknown == 0),
		n >= 100 && (total.cleared == 0 || total.slow == 0 || total.partial == 0 || total.floods == 0 || total.deltas == 0),
		n >= 100 && (total.wiped == 0 || total.slowSyncs == 0 || total.failedSyncs == 0),
		n >= 100 && (total.expanded == 0 || total.looked == 0 || total.moved == 0),
		n >= 1000 && (total.goneOn == 0 || total.dropped == 0 || total.stayed == 0),
		n >= 100 && canHaveDevices() && total.devices == 0,
		n >= 100 && hasDisks && (total.powerLosses == 0 || total.refused == 0 || total.freezes == 0):
		t.Error("too little happened for this to prove anything")
	}
}

// ownVolumes is the prefix of the names of this process's volumes. By it their devices are distinguished from all
// others of the machine.
func ownVolumes() string { return fmt.Sprintf("f%d-", os.Getpid()) }

func seedsToRun(t *testing.T) []uint64 {
	if s := os.Getenv("FAULT_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
		return []uint64{seed}
	}
	count := 100
	if os.Getenv("LONG") != "" {
		count = 2000
	}
	first := uint64(time.Now().UnixNano())
	t.Logf("seeds from %d", first)
	var seeds []uint64
	for i := range count {
		seeds = append(seeds, first+uint64(i))
	}
	return seeds
}

// startCluster starts the processes, with disks that can break where that is possible.
func startCluster(t *testing.T, disks bool) ([]*node, chan struct{}) {
	// The path is short, because the kernel limits the length of socket names. It is in memory if possible, because
	// every write is synced.
	base := ""
	if s, err := os.Stat("/dev/shm"); err == nil && s.IsDir() {
		base = "/dev/shm"
	}
	dir, err := os.MkdirTemp(base, "lhf")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	news := make(chan struct{}, 1)
	var nodes []*node
	for i := range nodeCount {
		n, err := newNode(i+1, filepath.Join(dir, strconv.Itoa(i+1)), disks, news)
		if n != nil {
			t.Cleanup(func() {
				assert.NoError(t, n.kill(), "end node %d", n.number)
				n.proxy.close()
			})
		}
		require.NoError(t, err)
		nodes = append(nodes, n)
	}
	return nodes, news
}

func canMount() bool {
	_, noLoop := os.Stat("/dev/loop-control")
	_, noMkfs := exec.LookPath("mkfs.ext4")
	return os.Geteuid() == 0 && noLoop == nil && noMkfs == nil
}

// runHistory runs one volume from its creation to its end. The error describes the violation.
func runHistory(name string, seed uint64, nodes []*node, news chan struct{}) (v *volume, p plan, err error) {
	p = newPlan(rand.New(rand.NewPCG(seed, 0)))
	if v, err = newVolume(name, nodes, news, p); err != nil {
		return nil, p, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var controlling sync.WaitGroup
	controlling.Go(func() { v.control(ctx) })
	controlling.Go(func() { v.countClears(ctx) })
	err = v.live(seed, p)
	if v.block {
		v.mu.Lock()
		v.seen.devices++
		v.mu.Unlock()
	}
	cancel()
	controlling.Wait()
	err = errors.Join(err, v.wrongSizes())
	if broken := v.history.check(); broken != "" {
		err = errors.Join(err, errors.New(broken))
	}
	if err == nil {
		err = v.remove()
	}
	return v, p, err
}

// live is the life of a volume while it is controlled.
func (v *volume) live(seed uint64, p plan) error {
	if err := v.await("is whole at first", v.isWhole); err != nil {
		return err
	}
	c := startClients(v, seed, p.syncEvery)
	err := inflict(v, p)
	if err == nil {
		err = v.await("is whole again", v.isWhole)
	}
	if err != nil {
		v.cancel() // otherwise the clients would wait forever too
	}
	c.end()
	if err == nil {
		err = v.await("is whole in the end", v.isWhole)
	}
	if call := v.mayLose.Load(); call != 0 {
		v.history.losePower(call)
	}
	if err != nil {
		return err
	}
	return v.compare()
}

// await waits until a condition holds.
func (v *volume) await(what string, holds func() bool) error {
	for end := time.Now().Add(convergence); !holds(); pause(v.ctx, time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("the volume never %s: %s", what, v.describe())
		}
	}
	return nil
}

func (v *volume) describe() string {
	o, err := v.object.read()
	text := fmt.Sprintf("object %d/%s %s (%v)", o.Generation, o.Session, o.Epoch, err)
	for _, n := range v.nodes {
		text += fmt.Sprintf("\n  node %d: replica %v; engine %v", n.number, v.replicaOn(n), v.engineOn(n))
	}
	return text
}

// compare checks that all replicas have the content that the volume had when it was stopped in order. Marks that such a
// stop leaves say that the members may differ. For example, a write was refused, and each member stored a part of it.
// The next start must make them equal.
func (v *volume) compare() error {
	ctx, cancel := context.WithTimeout(v.ctx, patience)
	defer cancel()
	for range 3 {
		served, err := v.readAndStop(ctx)
		if err != nil {
			return err
		}
		marked, err := v.markedRegions()
		if err != nil {
			return err
		}
		if marked == 0 {
			return errors.Join(v.compareReplicas(ctx, served), v.hasNoDevice())
		}
		v.mu.Lock()
		v.seen.leftMarks++
		v.mu.Unlock()
		v.wish(stay)
		if err := v.await("is whole after a start that makes it equal", v.isWhole); err != nil {
			return err
		}
	}
	return errors.New("marks stay, start after start")
}

// readAndStop reads the volume through its engine, as the last operations of its history, and then stops the engine.
func (v *volume) readAndStop(ctx context.Context) (content, error) {
	r, _ := v.current()
	served, err := v.finalReads(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("read the volume at the end: %w", err)
	}
	v.wish(halt)
	return served, v.await("is stopped", v.isStopped)
}

func (v *volume) compareReplicas(ctx context.Context, served content) error {
	size := v.askedBytes()
	if stray := served.stray(); stray != "" {
		return fmt.Errorf("the volume holds %s", stray)
	}
	for _, n := range v.replicaNodes() {
		if err := n.dropCaches(); err != nil { // the disks must be equal
			return err
		}
		b, err := n.dial(ctx, "ro/"+v.replicaName(n))
		if err != nil {
			return fmt.Errorf("open the replica of node %d: %w", n.number, err)
		}
		if b.Size() != size {
			return errors.Join(fmt.Errorf("the replica of node %d has %d bytes, not %d", n.number, b.Size(), size), b.Close())
		}
		held, err := readAll(ctx, b, size)
		if err = errors.Join(err, b.Close()); err != nil {
			return fmt.Errorf("read the replica of node %d: %w", n.number, err)
		}
		if differ := held.difference(served); differ != "" {
			return fmt.Errorf("the replica of node %d differs from the volume: %s", n.number, differ)
		}
	}
	return nil
}

// hasNoDevice returns an error if a node of the volume's device still exists although its engines have stopped.
func (v *volume) hasNoDevice() error {
	for _, n := range v.nodes {
		if _, err := os.Lstat(v.devicePath(n)); !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("node %d: the device %s is left (%w)", n.number, v.devicePath(n), err)
		}
	}
	return nil
}

func (v *volume) isStopped() bool {
	for _, n := range v.nodes {
		if v.engineOn(n) != nil || v.replicaOn(n).GetConnected() {
			return false
		}
	}
	return true
}

func (v *volume) finalReads(ctx context.Context, r *run) (content, error) {
	b, err := v.connect(ctx, r)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	size := v.askedBytes()
	if b.Size() != size {
		return nil, fmt.Errorf("it has %d bytes, not %d", b.Size(), size)
	}
	call := v.history.now()
	held, err := readAll(ctx, b, size)
	if err != nil {
		return nil, err
	}
	for block := range blockCount {
		value, err := held.block(block)
		if err != nil {
			return nil, err
		}
		v.history.add(2*blockCount, r, input{block: block}, call, output{value: value})
	}
	return held, nil
}
