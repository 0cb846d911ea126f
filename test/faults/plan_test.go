package faults

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// plan contains all random decisions for a history.
type plan struct {
	story  string // empty: the faults are unrelated
	faults []fault
	// gather is how long the start of an engine waits for members that are not served. After a crash of all, an engine
	// that waits starts with several members, and makes them equal. An engine that does not wait starts with the first
	// member, and rebuilds the others.
	gather time.Duration
	// syncEvery is the average number of a client's writes per flush, and per write that is durable.
	syncEvery int
	// replicas is the number of the volume's replicas. If a node has none, a replica can move there.
	replicas int
	// copyRate is the speed of a rebuild, in bytes per second; 0 for no limit.
	copyRate int64
	// block makes clients use the volume's block device, where such devices exist.
	block bool
}

// fault is one event that breaks something at a given time, at a given place if its kind has one. It is repaired after
// a while.
type fault struct {
	kind string
	on   place
	at   time.Duration // after the start of the plan
	last time.Duration
	// detail depends on the kind. "blackout": a bit for each node that loses its power. "full" and "choke": two bits
	// for each node, the number of blocks that stay free. "grow": see there.
	detail int
	takes  time.Duration // of slowSyncs and failedSyncs: duration of each sync
}

// The kinds of faults that a node's process receives by name.
const (
	slowSyncs = "slow-syncs"
	// failedSyncs: the first sync of each opening of data fails. The data that it had to write out stays only in the
	// cache.
	failedSyncs = "failed-syncs"
	failedMarks = "failed-marks" // the same for the intent map, and for the record of changes
	failedMeta  = "failed-meta"  // the same for metadata
)

// place is a node, counted from 0, or a place that is resolved only when the fault happens.
type place int

const (
	home       place = -1 // the engine's node
	elsewhere  place = -2 // all other nodes
	everywhere place = -3
)

func (p place) String() string {
	switch p {
	case home:
		return "home"
	case elsewhere:
		return "elsewhere"
	case everywhere:
		return "everywhere"
	}
	return fmt.Sprintf("node %d", int(p)+1)
}

func (f fault) String() string {
	text := fmt.Sprintf("%v %s %v for %v (%o)", f.at, f.kind, f.on, f.last, f.detail)
	if f.takes != 0 {
		text += fmt.Sprintf(" taking %v", f.takes)
	}
	return text
}

func (p plan) String() string {
	var out []string
	for _, f := range p.faults {
		out = append(out, f.String())
	}
	by := "NBD"
	if p.block {
		by = "its device"
	}
	return fmt.Sprintf("%q by %s, %d replicas; %s; a start waits %v; 1 write in %d is synced", p.story, by, p.replicas, strings.Join(out, "; "), p.gather, p.syncEvery)
}

// chance is a probability, in parts of the sum.
type chance[T any] struct {
	what  T
	parts int
}

func pick[T any](rng *rand.Rand, from []chance[T]) T {
	total := 0
	for _, c := range from {
		total += c.parts
	}
	draw := rng.IntN(total)
	for _, c := range from {
		if draw -= c.parts; draw < 0 {
			return c.what
		}
	}
	panic("BUG: drew more than there is")
}

var kinds = []chance[string]{
	{"kill", 4},
	{"power", 2},
	{"cut", 4},
	{"pause", 5},
	{"stall", 8},
	{"full", 2},
	{"break", 2},
	{"freeze", 3},
	{"flood", 2},
	{"api", 3},
	{"overtake", 3},
	{"move", 2},
	{"remove", 2},
	{slowSyncs, 3},
	{failedSyncs, 3},
	{failedMarks, 2},
	{failedMeta, 2},
	{"drop", 4},
	{"grow", 5},
	{"evict", 4},
	{"go-local", 2},
}

const (
	planTime = 150 * time.Millisecond
	// longest is the longest duration of a fault. It is several times slowAfter, so that many stalled or paused members
	// are expelled, and others come back in time.
	longest = 160 * time.Millisecond
)

// stories are faults that come together. Chance alone would rarely produce their consequences.
var stories = []chance[func(rng *rand.Rand) plan]{
	{func(*rand.Rand) plan { return plan{} }, 8},
	{blackout, 4},
	{tornEverywhere, 2},
	{lastOneFull, 3},
	{hungDisk, 2},
	{backPressure, 2},
	{joinWindow, 3},
	{unequalFlushes, 2},
	{failedFlush, 3},
	{lostCache, 8},
	{brokenGrowth, 4},
	{awayMeanwhile, 3},
	{noRoomToGrow, 3},
	{brokenMove, 4},
	{interruptedCopy, 4},
	{growsAndMoves, 3},
}

// newPlan draws a story and up to five other faults, which may overlap.
func newPlan(rng *rand.Rand) plan {
	p := pick(rng, stories)(rng)
	others := 1 + rng.IntN(5)
	if p.story != "" {
		others = rng.IntN(2)
	}
	for range others {
		f := fault{
			kind: pick(rng, kinds), on: place(rng.IntN(nodeCount)), at: between(rng, 0, planTime), last: between(rng, 5*time.Millisecond, longest),
			detail: spare(rng),
		}
		if f.kind == "grow" {
			f.detail = rng.IntN(4)
		}
		if f.kind == slowSyncs || strings.HasPrefix(f.kind, "failed-") {
			f.takes = between(rng, 5*time.Millisecond, slowestSync)
		}
		p.faults = append(p.faults, f)
	}
	slices.SortStableFunc(p.faults, func(a, b fault) int { return cmp.Compare(a.at, b.at) })
	if p.story != "" || rng.IntN(2) == 0 {
		p.gather = 400 * time.Millisecond
	}
	rarely := rng.IntN(2) == 0
	switch {
	case p.syncEvery != 0: // the story requires it
	case rarely:
		p.syncEvery = 400
	default:
		p.syncEvery = 8
	}
	p.block = rng.IntN(3) == 0
	switch {
	case p.replicas != 0: // the story requires it
	case rng.IntN(3) == 0:
		p.replicas = nodeCount - 1
	default:
		p.replicas = nodeCount
	}
	return p
}

// between draws whole milliseconds, so that plans are easy to read.
func between(rng *rand.Rand, from, to time.Duration) time.Duration {
	return from + time.Duration(rng.Int64N((to-from).Milliseconds()))*time.Millisecond
}

// spare draws for each node that 0 to 2 blocks of its disk stay free. This is less than the part of a block that
// clients turn into a hole.
func spare(rng *rand.Rand) (blocks int) {
	for n := range nodeCount {
		blocks |= rng.IntN(3) << (2 * n)
	}
	return blocks
}

// blackout kills all processes at once. Some nodes keep the data that was not synced, and others lose it.
func blackout(rng *rand.Rand) plan {
	return plan{story: "blackout", faults: []fault{{
		kind: "blackout", on: everywhere, at: between(rng, 80*time.Millisecond, planTime), last: 5 * time.Millisecond,
		detail: 1 + rng.IntN(1<<nodeCount-1),
	}}}
}

// tornEverywhere fills all disks, and leaves a different number of blocks free on each. So writes are refused of which
// each member has another part. Then the engine dies.
func tornEverywhere(rng *rand.Rand) plan {
	at, left := between(rng, 50*time.Millisecond, 100*time.Millisecond), spare(rng)
	last := between(rng, 80*time.Millisecond, 130*time.Millisecond)
	return plan{story: "torn everywhere", faults: []fault{
		{kind: "full", on: elsewhere, at: at, last: last + 10*time.Millisecond, detail: left},
		{kind: "choke", on: home, at: at, last: last, detail: left},
	}}
}

// lastOneFull fills the engine's own disk while the other members are gone but cannot be expelled. A write that is
// refused then has changed a part on this member, and nothing on the others. Then the engine dies.
func lastOneFull(rng *rand.Rand) plan {
	at := between(rng, 50*time.Millisecond, 100*time.Millisecond)
	last := between(rng, 90*time.Millisecond, 130*time.Millisecond)
	return plan{story: "the last one full", faults: []fault{
		{kind: "api", at: at, last: last + 50*time.Millisecond},
		{kind: "cut", on: elsewhere, at: at, last: last + 20*time.Millisecond},
		{kind: "choke", on: home, at: at, last: last, detail: spare(rng)},
	}}
}

// hungDisk makes the disk of the engine's node hang while clients write more than its queue holds. It may move the
// engine elsewhere. The hung requests are answered after the replica was expelled, and perhaps when it is a member
// again.
func hungDisk(rng *rand.Rand) plan {
	at := between(rng, 10*time.Millisecond, 60*time.Millisecond)
	p := plan{story: "hung disk", faults: []fault{
		{kind: "flood", on: home, at: at, last: 60 * time.Millisecond},
		{kind: "freeze", on: home, at: at + 5*time.Millisecond, last: between(rng, 80*time.Millisecond, 300*time.Millisecond)},
	}}
	if rng.IntN(3) == 0 {
		p.faults = append(p.faults, fault{kind: "overtake", at: at + between(rng, 10*time.Millisecond, 200*time.Millisecond)})
	}
	return p
}

// backPressure makes one node read nothing from its sockets, by its process or its proxy, while clients write more than
// sockets hold.
func backPressure(rng *rand.Rand) plan {
	at := between(rng, 10*time.Millisecond, 60*time.Millisecond)
	kind := []string{"pause", "stall"}[rng.IntN(2)]
	return plan{story: "back-pressure", faults: []fault{
		{kind: "flood", on: home, at: at, last: 100 * time.Millisecond},
		{kind: kind, on: place(rng.IntN(nodeCount)), at: at + 5*time.Millisecond, last: between(rng, 20*time.Millisecond, longest)},
	}}
}

// joinWindow expels a member, which is rebuilt at once. Then it makes the object unreachable, so that the copy is
// complete and no epoch lists the replica. Then nodes lose their power.
func joinWindow(rng *rand.Rand) plan {
	at := between(rng, 10*time.Millisecond, 60*time.Millisecond)
	return plan{story: "join window", faults: []fault{
		{kind: "remove", on: place(rng.IntN(nodeCount)), at: at},
		{kind: "api", at: at + between(rng, 8*time.Millisecond, 50*time.Millisecond), last: 110 * time.Millisecond},
		{
			kind: "blackout", on: everywhere, at: at + between(rng, 50*time.Millisecond, 150*time.Millisecond), last: 5 * time.Millisecond,
			detail: 1 + rng.IntN(1<<nodeCount-1),
		},
	}}
}

// unequalFlushes makes the syncs of one member, and then of another, take up to longer than an engine waits, while
// clients flush often.
func unequalFlushes(rng *rand.Rand) plan {
	first := rng.IntN(nodeCount)
	second := (first + 1 + rng.IntN(nodeCount-1)) % nodeCount
	at := between(rng, 0, 30*time.Millisecond)
	return plan{story: "unequal flushes", syncEvery: 4, faults: []fault{
		{kind: slowSyncs, on: place(first), at: at, last: longest, takes: between(rng, slowAfter/3, slowestSync)},
		{kind: slowSyncs, on: place(second), at: at + longest/2, last: longest, takes: between(rng, slowAfter/3, slowestSync)},
	}}
}

// failedFlush makes a sync of one member fail while other flushes wait for the next sync. Then that node loses its
// power. The data of those flushes must be elsewhere, even if the expulsion of the member could not be recorded.
func failedFlush(rng *rand.Rand) plan {
	on := rng.IntN(nodeCount)
	at := between(rng, 10*time.Millisecond, 60*time.Millisecond)
	takes := between(rng, 5*time.Millisecond, 40*time.Millisecond)
	p := plan{story: "failed flush", syncEvery: 2, faults: []fault{
		{kind: failedSyncs, on: place(on), at: at, last: 100 * time.Millisecond, takes: takes},
		{
			kind: "blackout", on: everywhere, at: at + takes + between(rng, 5*time.Millisecond, 60*time.Millisecond), last: 5 * time.Millisecond,
			detail: 1<<on | rng.IntN(1<<nodeCount),
		},
	}}
	if rng.IntN(2) == 0 {
		p.faults = append(p.faults, fault{kind: "api", at: at, last: 130 * time.Millisecond})
	}
	return p
}

// lostCache makes syncs of one member, or of all, fail while no epoch can be recorded. So the next engine starts with
// all members in their present state. Then lostCache kills all processes, which keep their caches. It drops the caches
// when the volume may be whole again.
func lostCache(rng *rand.Rand) plan {
	on := []place{place(rng.IntN(nodeCount)), everywhere}[rng.IntN(2)]
	at := between(rng, 10*time.Millisecond, 60*time.Millisecond)
	takes := between(rng, 5*time.Millisecond, 20*time.Millisecond)
	return plan{story: "lost cache", syncEvery: 2, faults: []fault{
		{kind: "api", at: at, last: 90 * time.Millisecond},
		{kind: pick(rng, []chance[string]{{failedSyncs, 3}, {failedMarks, 1}}), on: on, at: at + 5*time.Millisecond, last: 60 * time.Millisecond, takes: takes},
		{kind: "blackout", on: everywhere, at: at + 5*time.Millisecond + takes + between(rng, 5*time.Millisecond, 40*time.Millisecond), last: 5 * time.Millisecond},
		{kind: "drop", on: everywhere, at: at + between(rng, 150*time.Millisecond, 400*time.Millisecond)},
	}}
}
