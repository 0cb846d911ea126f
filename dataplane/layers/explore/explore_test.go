package explore

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
)

const (
	goalAdopted       = "a point was adopted from the members"
	goalAdoptedRevert = "a revert was adopted from a member"
	goalRolledBack    = "a rolled-back object was refused"
	goalDuringRebuild = "a snapshot became ready during a rebuild"
	goalCommon        = "a rebuild from a common point"
	goalRebuilt       = "a replica that was away is a member again"
	goalReady         = "a snapshot became ready"
	goalGivenUp       = "a border with writes above it was joined at a start"
	goalDropped       = "a member dropped what a revert gave up"
	goalMerged        = "a merged file left the list"
	goalTwoReverts    = "a replica came back that was away over two reverts"
	goalLost          = "a loss of power lost unflushed data"
)

// scenario is one search: the events that may happen, and those that must have happened for a useful search.
type scenario struct {
	name         string
	bounds, long bounds
	goals        []string
}

func (b bounds) with(change func(*bounds)) bounds {
	change(&b)
	return b
}

var (
	pair = bounds{members: 2, blocks: 1, size: 1}

	single = bounds{members: 1, blocks: 2, size: 2}

	atBarrier = pair.with(func(b *bounds) {
		b.writes, b.snapshots, b.crashes, b.losses, b.absences, b.partial, b.ends = 2, 1, 1, 1, 1, true, 1
	})
	atDeletion = single.with(func(b *bounds) {
		b.size, b.grows = 1, true
		b.writes, b.snapshots, b.deletes, b.heads, b.pieces = 2, 2, 2, 1, true
	})
	atTrim   = single.with(func(b *bounds) { b.writes, b.snapshots, b.trims, b.deletes, b.crashes, b.losses = 1, 2, 2, 1, 1, 1 })
	atHold   = single.with(func(b *bounds) { b.writes, b.snapshots, b.deletes, b.holds, b.pieces = 2, 2, 2, 1, true })
	atRevert = pair.with(func(b *bounds) {
		b.writes, b.snapshots, b.reverts, b.crashes, b.deletes = 1, 2, 1, 1, 1
	})
	atReturn = pair.with(func(b *bounds) {
		b.writes, b.snapshots, b.reverts, b.deletes, b.absences, b.rebuilds = 1, 2, 1, 1, 1, 1
	})
	// A replica is away over two reverts, with or without a snapshot between them.
	atTwice = pair.with(func(b *bounds) {
		b.writes, b.snapshots, b.reverts, b.absences, b.rebuilds, b.crashes, b.detached = 1, 2, 2, 1, 1, 1, true
	})
	atThree = pair.with(func(b *bounds) {
		b.members = 3
		b.writes, b.snapshots, b.crashes, b.losses, b.absences = 1, 1, 1, 1, 1
	})
	atRebuild = pair.with(func(b *bounds) {
		b.writes, b.snapshots, b.deletes, b.absences, b.rebuilds = 1, 2, 1, 1, 1
	})
	atCut = pair.with(func(b *bounds) {
		b.blocks, b.size = 2, 2
		b.writes, b.snapshots, b.absences, b.rebuilds, b.cuts = 2, 1, 1, 2, 1
	})
	atOwn = pair.with(func(b *bounds) {
		b.writes, b.snapshots, b.absences, b.rebuilds, b.crashes, b.partial = 2, 1, 1, 1, 1, true
	})
	// The object is restored to before a snapshot and a deletion, or to before a revert.
	atRestore = pair.with(func(b *bounds) {
		b.writes, b.snapshots, b.deletes, b.crashes, b.backups = 1, 2, 1, 1, 1
	})
	atForgotten = pair.with(func(b *bounds) {
		b.writes, b.snapshots, b.reverts, b.crashes, b.backups = 1, 1, 1, 2, 1
	})

	atTwoForgotten = pair.with(func(b *bounds) {
		b.writes, b.snapshots, b.reverts, b.crashes, b.backups = 1, 1, 2, 1, 1
	})

	wide = func(b *bounds) { b.members, b.blocks, b.size, b.writes = 3, 3, 3, 3 }
)

var scenarios = []scenario{
	{
		name: "members and engines stop at a barrier", bounds: atBarrier.with(func(b *bounds) { b.absences = 0 }), goals: []string{goalReady, goalGivenUp, goalLost},
		long: atBarrier.with(func(b *bounds) { b.members, b.snapshots, b.crashes = 3, 2, 2 }),
	},
	{
		name: "one of three members stops at a barrier", bounds: atThree, goals: []string{goalReady, goalLost},
		long: atThree.with(func(b *bounds) { b.writes, b.absences, b.partial = 2, 2, true }),
	},
	{
		name: "deletions are merged piece by piece", bounds: atDeletion, goals: []string{goalReady, goalMerged},
		long: atDeletion.with(wide).with(func(b *bounds) { b.members, b.size, b.snapshots, b.trims = 2, 2, 3, 1 }),
	},
	{
		name: "trims above and below snapshots", bounds: atTrim, goals: []string{goalReady, goalMerged, goalLost},
		long: atTrim.with(wide),
	},
	{
		name: "reverts and engines that die", bounds: atRevert, goals: []string{goalReady, goalDropped},
		long: atRevert.with(func(b *bounds) { b.members, b.reverts, b.absences, b.rebuilds = 3, 2, 1, 1 }),
	},
	{
		name: "reverts while a member is away", bounds: atReturn, goals: []string{goalDropped, goalCommon, goalRebuilt},
		long: atReturn.with(func(b *bounds) { b.writes, b.reverts, b.losses, b.crashes, b.partial = 2, 2, 1, 1, true }),
	},
	{
		name: "a replica is away over two reverts", bounds: atTwice, goals: []string{goalDropped, goalRebuilt, goalTwoReverts},
		long: atTwice.with(func(b *bounds) { b.members, b.writes, b.snapshots, b.deletes, b.crashes = 3, 2, 3, 1, 2 }),
	},
	{
		name: "rebuilds while snapshots come and go", bounds: atRebuild, goals: []string{goalDuringRebuild, goalCommon, goalRebuilt},
		long: atRebuild.with(func(b *bounds) { b.members, b.losses, b.reverts, b.writes = 3, 1, 1, 2 }),
	},
	{
		name: "rebuilds that are interrupted", bounds: atCut, goals: []string{goalCommon, goalRebuilt},
		long: atCut.with(wide).with(func(b *bounds) { b.snapshots, b.losses = 2, 1 }),
	},
	{
		name: "a replica that was away has what no member has", bounds: atOwn,
		long: atOwn.with(func(b *bounds) { b.members, b.snapshots, b.deletes, b.losses = 3, 2, 1, 1 }),
	},
	{
		name: "the API server is restored from a backup", bounds: atRestore, goals: []string{goalAdopted},
		long: atRestore.with(func(b *bounds) { b.members, b.absences, b.ends, b.crashes = 3, 1, 1, 2 }),
	},
	{
		name: "the API server is restored to before a revert", bounds: atForgotten, goals: []string{goalAdoptedRevert, goalRolledBack},
		long: atForgotten.with(func(b *bounds) { b.members, b.snapshots, b.deletes, b.absences = 3, 2, 1, 1 }),
	},
	{
		name: "the API server is restored to before two reverts", bounds: atTwoForgotten, goals: []string{goalAdoptedRevert},
		long: atTwoForgotten.with(func(b *bounds) { b.members, b.snapshots, b.crashes, b.detached = 3, 2, 2, true }),
	},
	{
		name: "jobs hold deleted snapshots", bounds: atHold, goals: []string{goalMerged},
		long: atHold.with(func(b *bounds) { b.snapshots, b.writes, b.pieces, b.heads = 3, 3, true, 1 }),
	},
}

func TestEveryReachableStateKeepsTheInvariants(t *testing.T) {
	skipSlow(t)
	for _, sc := range scenarios {
		t.Run(sc.name, func(t *testing.T) {
			b := sc.bounds
			if long() {
				b = sc.long
			}
			goals := map[string]int{}
			holds(t, b.model(protocol(), goals))
			for _, g := range sc.goals {
				// a search that was cut off may not have reached this
				assert.True(t, goals[g] > 0 || long(), "never seen: %s", g)
			}
		})
	}
}

// Each mutant breaks one rule, or the order of two steps. The search must find the consequence. The number of the hole
// in the first design leads to the reason of the rule.
func TestABrokenRuleIsFound(t *testing.T) {
	skipSlow(t)
	for _, tc := range []struct {
		name   string
		bounds bounds
		change func(*rules)
		want   string
	}{
		{
			name: "S5: a start keeps what was intended", bounds: atBarrier, want: "V1",
			change: func(r *rules) {
				honest := r.planStart
				r.planStart = func(l layers.Line, members []layers.Chain) (layers.Start, error) {
					s, err := honest(l, members)
					for _, m := range l.Points {
						if m.State == layers.Intended {
							m.State = layers.Ready
							s.Line.Points = append(s.Line.Points, m)
						}
					}
					return s, err
				}
			},
		},
		{
			name: "S5: a border that was given up is dropped with the head above it", bounds: atBarrier, want: "V6",
			change: func(r *rules) { r.follow = dropUnlisted },
		},
		{
			name: "a snapshot is ready before its members have flushed", bounds: atBarrier, want: "V",
			change: func(r *rules) { r.readyAllowed = func(_, _, _, _ []string) bool { return true } },
		},
		{
			name: "a flush syncs only the top file", bounds: atBarrier, want: "V",
			change: func(r *rules) { r.flushesTopOnly = true },
		},
		{
			name: "S17: a snapshot is ready although a member has failed since the switch", bounds: atBarrier, want: "V1",
			change: func(r *rules) {
				r.readyAllowed = func(_, _, serving, sealed []string) bool { return within(serving, sealed) }
			},
		},
		{
			name: "a start does not make marked blocks equal", bounds: atBarrier, want: "V2",
			change: func(r *rules) { r.doesNotEqualize = true },
		},
		{
			name: "S7: a border that the object does not list stops the start", bounds: atBarrier, want: "V7",
			change: func(r *rules) { r.strict = true },
		},
		{
			name: "S6: what the object does not list was deleted", bounds: atRevert, want: "V",
			change: func(r *rules) {
				r.follow = func(l layers.Line, c layers.Chain) layers.Followed {
					l.Reverted = nil
					return l.Follow(c)
				}
			},
		},
		{
			name: "S6: what the object does not list was reverted", bounds: atRevert.with(func(b *bounds) { b.reverts = 0 }), want: "V",
			change: func(r *rules) { r.follow = dropUnlisted },
		},
		{
			name: "S8: members revert before the object knows", bounds: atRevert, want: "V",
			change: func(r *rules) { r.revertsMembers = true },
		},
		{
			name: "S8: a head that stands on the point of a revert is kept", bounds: atRevert, want: "V",
			change: func(r *rules) { r.follow = keepHead },
		},
		{
			name: "a layer does not store on which number it stands", bounds: atRevert, want: "V6",
			change: func(r *rules) {
				r.follow = func(l layers.Line, c layers.Chain) layers.Followed {
					c.Layers = slices.Clone(c.Layers)
					for i := range c.Layers {
						c.Layers[i].From = 0
						if i > 0 {
							c.Layers[i].From = c.Layers[i-1].Top.Number
						}
					}
					return l.Follow(c)
				}
			},
		},
		{
			name: "the object does not keep the last revert", bounds: atTwice, want: "V",
			change: func(r *rules) {
				honest := r.revert
				r.revert = func(l layers.Line, to layers.Point) (layers.Line, error) {
					l, err := honest(l, to)
					l.Reverted = nil
					return l, err
				}
			},
		},
		{
			name: "the object keeps the first revert, not the last one", bounds: atTwice, want: "V",
			change: func(r *rules) {
				honest := r.revert
				r.revert = func(l layers.Line, to layers.Point) (layers.Line, error) {
					first := l.Reverted
					l, err := honest(l, to)
					if len(first) > 0 {
						l.Reverted = first
					}
					return l, err
				}
			},
		},
		{
			name: "a start forgets the revert before all members have followed it", bounds: atTwice, want: "V",
			change: func(r *rules) {
				honest := r.planStart
				r.planStart = func(l layers.Line, members []layers.Chain) (layers.Start, error) {
					s, err := honest(l, members)
					if slices.ContainsFunc(members, func(c layers.Chain) bool { return slices.Contains(l.Reverted, c.Reverted) }) {
						s.Line.Reverted = nil
					}
					return s, err
				}
			},
		},
		{
			name: "a rebuilt replica stands on a point, not on a number after the revert", bounds: atTwice, want: "V",
			change: func(r *rules) { r.standsOnBorder = true },
		},
		{
			name: "S9: a revert lets later snapshots go without being told", bounds: atRevert.with(func(b *bounds) { b.silent = true }), want: "V3",
		},
		{
			name: "S7: a restored object adopts no point", bounds: atRestore, want: "V3",
			change: func(r *rules) {
				r.planStart = func(l layers.Line, members []layers.Chain) (layers.Start, error) {
					s, err := layers.PlanStart(l, members, nil)
					s.Line.Points = slices.DeleteFunc(s.Line.Points, func(m layers.Mark) bool { return m.Number > l.Counter })
					return s, err
				}
			},
		},
		{
			name: "a restored object forgets a revert that a member has followed", bounds: atForgotten, want: "V",
			change: func(r *rules) {
				r.planStart = func(l layers.Line, members []layers.Chain) (layers.Start, error) {
					for i := range members {
						members[i].Reverted = layers.Interval{}
					}
					return layers.PlanStart(l, members, nil)
				}
			},
		},
		{
			name: "a restored object adopts the first of two reverts", bounds: atTwoForgotten, want: "V",
			change: func(r *rules) {
				honest := r.planStart
				r.planStart = func(l layers.Line, members []layers.Chain) (layers.Start, error) {
					s, err := honest(l, members)
					for _, c := range members {
						if c.Reverted.By > l.Counter && c.Reverted.By < s.Line.Reverted[0].By {
							s.Line.Reverted[0] = c.Reverted
						}
					}
					return s, err
				}
			},
		},
		{
			name: "a restored object keeps a snapshot whose border was merged away", bounds: atRestore, want: "V1",
			change: func(r *rules) {
				r.planStart = func(l layers.Line, members []layers.Chain) (layers.Start, error) {
					s, err := layers.PlanStart(l, members, nil)
					for _, m := range l.Points {
						if m.State == layers.Ready && s.Line.State(m.Point) == layers.Unknown {
							s.Line.Points = append(s.Line.Points, m)
						}
					}
					return s, err
				}
			},
		},
		{
			// A limit of the rules: the object looks the same as after an engine that died before ready.
			name: "a backup of the object in the middle of an attempt loses the snapshot", want: "V3",
			bounds: atRestore.with(func(b *bounds) { b.backupInAttempt = true }),
		},
		{
			name: "S15: pieces are moved before the list has joined the files", bounds: atRebuild.with(func(b *bounds) { b.pieces = true }), want: "V",
			change: func(r *rules) { r.movesBeforeJoin = true },
		},
		{
			name: "S20: merges do not wait for holds", bounds: atHold, want: "V1",
			change: func(r *rules) {
				r.mayJoin = func(l layers.Line, p layers.Point, b layers.Busy) bool {
					return !b.Barrier && (l.State(p) == layers.Deleted || l.State(p) == layers.Unknown)
				}
			},
		},
		{
			name: "S23: a trim clears the bit", bounds: atTrim, want: "V2",
			change: func(r *rules) {
				r.onDiscard = func(headHas, _ bool) layers.Entry { return layers.Entry{Punch: headHas} }
			},
		},
		{
			name: "S23: a trim enters every block", bounds: atTrim, want: "V5",
			change: func(r *rules) {
				r.onDiscard = func(bool, bool) layers.Entry { return layers.Entry{Punch: true, Enter: true} }
			},
		},
		{
			name: "S12: merges take away the border that a rebuild needs", bounds: atRebuild, want: "V9",
			change: func(r *rules) {
				r.mayJoin = func(l layers.Line, p layers.Point, b layers.Busy) bool {
					b.Needed = nil
					return l.MayJoin(p, b)
				}
			},
		},
		{
			name: "a rebuild forgets what the target has above the base", bounds: atOwn, want: "V",
			change: func(r *rules) { r.forgetsOwn = true },
		},
		{
			name: "a rebuild copies layers, not views", bounds: atOwn, want: "V",
			change: func(r *rules) { r.layersNotViews = true },
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := protocol()
			if tc.change != nil {
				tc.change(&r)
			}
			fails(t, tc.bounds.model(r, map[string]int{}), tc.want)
		})
	}
}

// S13: with the wrong rule a state that must be reachable is not.
func TestASnapshotIsPossibleDuringARebuild(t *testing.T) {
	skipSlow(t)
	states, limit := limits()
	b := atRebuild.with(func(b *bounds) { b.deletes = 0 })
	r, goals := protocol(), map[string]int{}
	explore(b.model(r, goals), states, limit)
	assert.NotZero(t, goals[goalDuringRebuild])

	r.refusesInRebuild = true
	goals = map[string]int{}
	explore(b.model(r, goals), states, limit)
	assert.Zero(t, goals[goalDuringRebuild], "the test does not notice the wrong rule")
}

func within(these, those []string) bool {
	return !slices.ContainsFunc(these, func(x string) bool { return !slices.Contains(those, x) })
}

// dropUnlisted takes every border that the line does not have for one that a revert gave up.
func dropUnlisted(l layers.Line, c layers.Chain) layers.Followed {
	for _, layer := range c.Layers {
		if p := layer.Top.Point; p.Number > 0 && l.State(p) == layers.Unknown {
			l.Reverted = append(slices.Clone(l.Reverted), layers.Interval{To: p.Number - 1, By: l.Counter + 1})
			break
		}
	}
	f := l.Follow(c)
	f.Short = false
	return f
}

// keepHead follows reverts by borders only.
func keepHead(l layers.Line, c layers.Chain) layers.Followed {
	f := l.Follow(c)
	if len(f.Dropped) == 0 && len(f.Chain.Layers) == len(c.Layers) {
		f.Chain.Layers = slices.Clone(f.Chain.Layers)
		f.Chain.Layers[f.Chain.Head()].Files = c.Layers[c.Head()].Files
		f.Chain.Next = c.Next
	}
	return f
}
