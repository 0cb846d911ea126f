package explore

import (
	"fmt"
	"testing"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
)

// One or two replicas with two blocks. Backups of points are made for one or two targets. Users write, take snapshots,
// delete and revert. Each replica merges at its own speed, block by block. Power is lost, a replica goes away and is
// rebuilt. The next backup asks any member which blocks have changed since the last one.
//
//	K0  every snapshot and the volume read rightly on every member (so the model itself is right)
//	K1  each block that differs is among those that Changed names, for each border and each kept map of a member
//	K2  every member knows the point of the last backup, so that the next one is not a full one
//	K3  Changed names only blocks that were written since the point

const (
	keptBlocks = 2
	keptFiles  = 5
	keptPoints = 5
	keptMaps   = 3
	zeroed     = 255 // a block that the file has, with zeroes
)

// keptRules are the decisions of one search. A mutant changes one of them.
type keptRules struct {
	keep     func(layers.Chain, layers.Point, []layers.KeptMap) []layers.KeptMap
	next     func(p layers.Pair, kept []layers.KeptMap, s layers.Space, barrier, mayAdd bool) (layers.MergeAct, layers.MergeWait)
	takeUp   func(kept []layers.KeptMap, lower, upper layers.File, n int64, has layers.Has, changes bool) ([]layers.KeptMap, bool)
	drop     func([]layers.KeptMap, layers.Interval) []layers.KeptMap
	handOver func(l layers.Line, source, target layers.Chain, done layers.Point, n int64, has layers.Has, kept []layers.KeptMap) []layers.KeptMap
	changed  func(c layers.Chain, from, to layers.Point, n int64, has layers.Has, kept []layers.KeptMap) ([]bool, bool)

	joinsFirst    bool // the border goes before the map is stored
	releasesFirst bool // the hold ends before the object has the base
	headInWrite   bool // a local head is put on while a write to the file below it is not answered
	durableOnly   bool // the bits that are taken up are those on the disk
	keepsOnReturn bool // a rebuild leaves the target's maps as they are
	keepsBases    bool // a revert leaves the bases of later points
	followsBlind  bool // a start joins borders without a map
}

func rightKept() keptRules {
	return keptRules{
		keep: layers.Chain.Keep, next: layers.NextAct, takeUp: layers.TakeUp, drop: layers.DropKept,
		handOver: layers.Line.HandOver, changed: layers.Chain.Changed,
	}
}

// keptBounds limit how often each event may happen.
type keptBounds struct {
	replicas, targets         uint8
	writes, snapshots, fails  uint8
	backups, deletes, reverts uint8
	heads, losses, restarts   uint8
	rebuilds                  uint8
	slowWrites                bool // a write is answered by an event of its own
	targetMerges              bool // also before it goes away
}

func (r keptRules) violation(s *keptState, replicas int) string {
	for i := range replicas {
		m := &s.replica[i]
		if m.away {
			continue
		}
		for b := range keptBlocks {
			if m.view(int(m.n)-1, b) != s.truth[b] {
				return fmt.Sprintf("K0: %s reads block %d wrongly", memberNames[i], b)
			}
		}
		for n := uint8(1); n <= s.counter; n++ {
			if s.points[n].state != layers.Ready && s.points[n].holds == 0 {
				continue
			}
			place := m.border(n)
			if place < 0 {
				return fmt.Sprintf("K0: %s lacks point %d", memberNames[i], n)
			}
			for b := range keptBlocks {
				if m.view(place, b) != s.snap[n][b] {
					return fmt.Sprintf("K0: %s reads block %d of point %d wrongly", memberNames[i], b, n)
				}
			}
			if s.points[n].state == layers.Ready {
				if why := r.wrongChanges(s, m, n); why != "" {
					return why + " on " + memberNames[i]
				}
			}
		}
	}
	return ""
}

// wrongChanges asks what has changed between each earlier point that a job may know and the point to.
func (r keptRules) wrongChanges(s *keptState, m *keptReplica, to uint8) string {
	if s.backedUp&(1<<to-1) == 0 {
		return ""
	}
	chain, has := m.chain()
	kept := m.kept()
	for from := uint8(1); from < to; from++ {
		if s.backedUp>>from&1 == 0 {
			continue
		}
		changed, ok := r.changed(chain, pointOf(from, from), pointOf(to, to), keptBlocks, has, kept)
		if !ok {
			if s.bases[0] == from || s.bases[1] == from {
				return fmt.Sprintf("K2: the point %d of the last backup is not known any longer", from)
			}
			continue
		}
		for b := range keptBlocks {
			if s.snap[from][b] != s.snap[to][b] && !changed[b] {
				return fmt.Sprintf("K1: block %d differs between points %d and %d, and no map says so", b, from, to)
			}
			if changed[b] && s.touched[from]>>b&1 == 0 {
				return fmt.Sprintf("K3: block %d was not written since point %d, and counts as changed", b, from)
			}
		}
	}
	return ""
}

func (r keptRules) model(b keptBounds, goals map[string]int) model[keptState, said] {
	start := keptState{}
	for i := range start.replica {
		start.replica[i] = keptReplica{n: 1, next: 2, files: [keptFiles]keptFile{{num: 1}}}
	}
	return model[keptState, said]{
		start: start,
		successors: func(s *keptState, emit func(said, keptState, string)) {
			k := keptStep{rules: r, bounds: b, from: s, emit: emit, goals: goals}
			k.all()
		},
		violation: func(s *keptState) string { return r.violation(s, int(b.replicas)) },
		show:      showKept,
	}
}

const (
	goalTookUp   = "a kept map took up a file"
	goalTwoMaps  = "two kept maps with different starts"
	goalHandOver = "the target of a rebuild got a map"
	goalRestart  = "a start joined a border above a kept map"
	goalWaits    = "a merge waited for the next snapshot"
)

var keptSearches = []struct {
	name   string
	bounds keptBounds
	long   func(*keptBounds)
	goals  []string
}{
	{
		"merges and losses of power",
		keptBounds{replicas: 1, targets: 1, writes: 2, snapshots: 2, backups: 1, deletes: 1, heads: 1, losses: 1},
		func(b *keptBounds) { b.writes, b.snapshots, b.deletes, b.fails = 3, 3, 2, 1 },
		[]string{goalTookUp, goalWaits},
	},
	{
		"merges",
		keptBounds{replicas: 1, targets: 1, writes: 3, snapshots: 3, backups: 1, deletes: 2},
		func(b *keptBounds) { b.writes, b.heads, b.deletes = 4, 1, 3 },
		[]string{goalTookUp},
	},
	{
		"two targets",
		keptBounds{replicas: 1, targets: 2, writes: 2, snapshots: 3, backups: 2, deletes: 2},
		func(b *keptBounds) { b.writes, b.backups, b.heads, b.deletes = 3, 3, 1, 3 },
		[]string{goalTookUp, goalTwoMaps},
	},
	{
		"writes that take their time",
		keptBounds{replicas: 1, targets: 1, writes: 2, snapshots: 2, backups: 1, deletes: 1, heads: 1, slowWrites: true},
		func(b *keptBounds) { b.writes, b.heads, b.losses = 3, 2, 1 },
		[]string{goalTookUp},
	},
	{
		"reverts and snapshots that fail",
		keptBounds{replicas: 1, targets: 1, writes: 1, snapshots: 3, fails: 1, backups: 1, deletes: 1, reverts: 1, restarts: 1},
		func(b *keptBounds) { b.writes, b.deletes, b.backups, b.losses = 2, 2, 2, 1 },
		[]string{goalTookUp, goalRestart},
	},
	{
		"rebuilds",
		keptBounds{replicas: 2, targets: 1, writes: 1, snapshots: 2, backups: 1, deletes: 1, rebuilds: 1},
		func(b *keptBounds) { b.targetMerges, b.writes, b.reverts, b.losses = true, 3, 1, 1 },
		[]string{goalHandOver},
	},
}

func TestAKeptMapNamesEveryChange(t *testing.T) {
	skipSlow(t)
	for _, tc := range keptSearches {
		t.Run(tc.name, func(t *testing.T) {
			b, goals := tc.bounds, map[string]int{}
			if long() {
				tc.long(&b)
			}
			holds(t, rightKept().model(b, goals))
			for _, g := range tc.goals {
				if goals[g] == 0 && !long() {
					t.Errorf("never seen: %s", g)
				}
			}
		})
	}
}

// Each mutant breaks one rule. The search must find the consequence.
func TestABrokenRuleOfKeptMapsIsFound(t *testing.T) {
	skipSlow(t)
	const (
		power = iota
		merges
		twoTargets
		slow
		reverts
		rebuilds
	)
	for _, tc := range []struct {
		name   string
		search int
		want   string
		change func(*keptRules)
	}{
		{"S19: no map is kept", merges, "K2", func(r *keptRules) {
			r.keep = func(_ layers.Chain, _ layers.Point, kept []layers.KeptMap) []layers.KeptMap { return kept }
		}},
		{"S19: the border goes before the map is stored", merges, "K2", func(r *keptRules) { r.joinsFirst = true }},
		{"a map ends above the lowest file of the layer", merges, "K1", func(r *keptRules) {
			r.keep = func(c layers.Chain, p layers.Point, kept []layers.KeptMap) []layers.KeptMap {
				out := c.Keep(p, kept)
				if len(out) > len(kept) {
					out[len(kept)].End++
				}
				return out
			}
		}},
		{"a map ends below the point", merges, "K3", func(r *keptRules) {
			r.keep = func(c layers.Chain, p layers.Point, kept []layers.KeptMap) []layers.KeptMap {
				out := c.Keep(p, kept)
				if len(out) > len(kept) {
					out[len(kept)].End--
				}
				return out
			}
		}},
		{"a merge does not ask whether a map ends between its files", merges, "K", func(r *keptRules) {
			r.next = func(p layers.Pair, _ []layers.KeptMap, s layers.Space, barrier, mayAdd bool) (layers.MergeAct, layers.MergeWait) {
				return layers.NextAct(p, nil, s, barrier, mayAdd)
			}
		}},
		{"the end moves, and the bits are not taken up", merges, "K1", func(r *keptRules) {
			r.takeUp = func(kept []layers.KeptMap, lower, upper layers.File, n int64, _ layers.Has, changes bool) ([]layers.KeptMap, bool) {
				return layers.TakeUp(kept, lower, upper, n, func(layers.File, int64) bool { return false }, changes)
			}
		}},
		{"the bits of the lower file are taken up", merges, "K", func(r *keptRules) {
			r.takeUp = func(kept []layers.KeptMap, lower, upper layers.File, n int64, has layers.Has, changes bool) ([]layers.KeptMap, bool) {
				return layers.TakeUp(kept, lower, upper, n, func(_ layers.File, b int64) bool { return has(lower, b) }, changes)
			}
		}},
		{"the bits of a file to which users write are taken up", merges, "K1", func(r *keptRules) {
			r.next = func(p layers.Pair, kept []layers.KeptMap, s layers.Space, barrier, mayAdd bool) (layers.MergeAct, layers.MergeWait) {
				act, wait := layers.NextAct(p, kept, s, barrier, mayAdd)
				if wait == layers.NeedsSnapshot {
					return layers.TakeUpBits, layers.NoWait
				}
				return act, wait
			}
			r.takeUp = func(kept []layers.KeptMap, lower, upper layers.File, n int64, has layers.Has, _ bool) ([]layers.KeptMap, bool) {
				return layers.TakeUp(kept, lower, upper, n, has, false)
			}
		}},
		{"a local head is put on while a write is not answered", slow, "K", func(r *keptRules) { r.headInWrite = true }},
		{"a file becomes the lowest one, and the map needs its bits", merges, "K3", func(r *keptRules) {
			r.next = func(p layers.Pair, kept []layers.KeptMap, s layers.Space, barrier, mayAdd bool) (layers.MergeAct, layers.MergeWait) {
				p.Lowest = false
				return layers.NextAct(p, kept, s, barrier, mayAdd)
			}
		}},
		{"only the oldest of two maps takes up a file", twoTargets, "K1", func(r *keptRules) {
			r.takeUp = func(kept []layers.KeptMap, lower, upper layers.File, n int64, has layers.Has, changes bool) ([]layers.KeptMap, bool) {
				if len(kept) < 2 {
					return layers.TakeUp(kept, lower, upper, n, has, changes)
				}
				out, ok := layers.TakeUp(kept[:1], lower, upper, n, has, changes)
				return append(out, layers.KeptMap{From: kept[1].From, End: upper + 1, Blocks: kept[1].Blocks}), ok
			}
		}},
		{"the hold ends before the object has the base", merges, "K2", func(r *keptRules) { r.releasesFirst = true }},
		{"a revert leaves the maps of later points", reverts, "K1", func(r *keptRules) {
			r.drop = func(kept []layers.KeptMap, _ layers.Interval) []layers.KeptMap { return kept }
		}},
		{"a revert leaves the bases of later points", reverts, "K2", func(r *keptRules) { r.keepsBases = true }},
		{"a revert drops all maps", reverts, "K2", func(r *keptRules) {
			r.drop = func([]layers.KeptMap, layers.Interval) []layers.KeptMap { return nil }
		}},
		{"a later start drops the maps of points that are newer than the revert", reverts, "K2", func(r *keptRules) {
			r.drop = func(kept []layers.KeptMap, i layers.Interval) (out []layers.KeptMap) {
				for _, k := range kept {
					if k.From.Number <= i.To {
						out = append(out, k)
					}
				}
				return out
			}
		}},
		{"a rebuild leaves the target's maps as they are", rebuilds, "K2", func(r *keptRules) { r.keepsOnReturn = true }},
		{"the target of a rebuild gets no map", rebuilds, "K2", func(r *keptRules) {
			r.handOver = func(layers.Line, layers.Chain, layers.Chain, layers.Point, int64, layers.Has, []layers.KeptMap) []layers.KeptMap {
				return nil
			}
		}},
		{"the target of a rebuild gets the source's map without the files above its end", rebuilds, "K1", func(r *keptRules) {
			r.handOver = func(l layers.Line, source, target layers.Chain, done layers.Point, n int64, _ layers.Has, kept []layers.KeptMap) []layers.KeptMap {
				return l.HandOver(source, target, done, n, func(layers.File, int64) bool { return false }, kept)
			}
		}},
		{"Changed leaves out the file at which a map ends", merges, "K1", func(r *keptRules) {
			r.changed = func(c layers.Chain, from, to layers.Point, n int64, has layers.Has, kept []layers.KeptMap) ([]bool, bool) {
				for i := range kept {
					kept[i].End++
				}
				return c.Changed(from, to, n, has, kept)
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := rightKept()
			tc.change(&r)
			fails(t, r.model(keptSearches[tc.search].bounds, map[string]int{}), tc.want)
		})
	}
}
