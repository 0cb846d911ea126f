package explore

import (
	"strings"
	"testing"
	"time"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
)

// Each mutant breaks one rule, or the order of two steps. The search must find the consequence. This shows that the
// invariants and the bounds are strict enough to detect it, and why the rule exists.
func TestABrokenRuleIsFound(t *testing.T) {
	small := bounds{writes: 1, starts: 2, fails: 1, crashes: 1}
	rebuild := bounds{writes: 1, starts: 2, fails: 1, crashes: 1, rebuilds: 1, alone: true}
	delta := bounds{writes: 1, starts: 2, fails: 1, crashes: 1, rebuilds: 1, alone: true, delta: true}
	for _, tc := range []struct {
		name   string
		bounds bounds
		change func(*rules)
		want   string // the start of the violation
	}{
		{
			name: "a write is acknowledged before the epoch without the failed member is recorded", bounds: small, want: "I1",
			change: func(r *rules) {
				r.judge = func(parts []membership.Part) membership.Answer {
					a := membership.Judge(parts).Answer
					if a == membership.WaitForEpoch {
						return membership.Acknowledge
					}
					return a
				}
			},
		},
		{
			name: "a write is acknowledged when most members have it", bounds: small, want: "I1",
			change: func(r *rules) {
				r.judge = func(parts []membership.Part) membership.Answer {
					stored := 0
					for _, p := range parts {
						if p.Result == membership.Stored {
							stored++
						}
					}
					if stored*2 > replicas {
						return membership.Acknowledge
					}
					return membership.WaitForEpoch
				}
			},
		},
		{
			name: "the last member is expelled", bounds: bounds{writes: 1, starts: 1, fails: 3}, want: "I3",
			change: func(r *rules) {
				r.planExpel = func(current epoch, failed set) (epoch, error) {
					rest := current.members() &^ failed
					return epochOf(int64(current>>8), int64(current>>3&31)+1, rest&(rest-1)), nil
				}
			},
		},
		{
			name: "a replica admits a lower generation", bounds: bounds{writes: 1, starts: 2}, want: "I",
			change: func(r *rules) { r.admit = func(_, _, _, _ uint8) bool { return true } },
		},
		{
			name: "the object takes an epoch of an engine that was overtaken", bounds: small, want: "I",
			change: func(r *rules) {
				r.canRecord = func(o object, _, _ uint8, proposed epoch) bool { return proposed.members() != 0 }
			},
		},
		{
			name: "a start takes whoever is there", bounds: small, want: "I4",
			change: func(r *rules) {
				r.planStart = func(recorded epoch, generation uint8, said [replicas]shown) (epoch, error) {
					var m set
					for i, sh := range said {
						if sh.asked {
							m |= one(i)
						}
					}
					return epochOf(int64(generation), 1, m), nil
				}
			},
		},
		{
			name: "a start does not look at the epochs that replicas show", bounds: rebuild.with(func(b *bounds) { b.rollbacks = 1 }), want: "I5",
			change: func(r *rules) {
				honest := r.planStart
				r.planStart = func(recorded epoch, generation uint8, said [replicas]shown) (epoch, error) {
					for i := range said {
						said[i].epoch = min(said[i].epoch, recorded)
					}
					return honest(recorded, generation, said)
				}
			},
		},
		{
			name: "replicas store an epoch before the object holds it", bounds: small,
			want:   "I5: a start was refused for a rolled-back object",
			change: func(r *rules) { r.storesBeforeRecord = true },
		},
		{
			name: "a replica is proposed as a member before it has everything", bounds: rebuild, want: "I",
			change: func(r *rules) { r.joinsBeforeCopy = true },
		},
		{
			name: "marks are cleared while a failed member is still listed", bounds: bounds{writes: 1, starts: 3, fails: 1, crashes: 2, alone: true}, want: "I6",
			change: func(r *rules) { r.unmarksWhileLeaving = true },
		},
		{
			name: "a start does not make marked writes equal", bounds: small, want: "I6",
			change: func(r *rules) { r.servesUnsynced = true },
		},
		{
			name: "a fence counts when a replica outside the epoch has confirmed it", bounds: bounds{writes: 1, starts: 1, raises: 1, fails: 1}, want: "I7",
			change: func(r *rules) { r.fencesOutsiders = true },
		},
		{
			name: "a replica is not told the epoch before its rebuild, and the object is restored", bounds: rebuild.with(func(b *bounds) { b.rollbacks = 1 }), want: "I4",
			change: func(r *rules) { r.rebuildsUntold = true },
		},
		{
			name: "marks are cleared without a record", bounds: delta, want: "I",
			change: func(r *rules) { r.unmarksUnrecorded = true },
		},
		{
			name: "a write under way when a replica joins does not count as what it may lack", bounds: delta, want: "I",
			change: func(r *rules) { r.forgetsTheWrite = true },
		},
		{
			name: "a replica that joins is not asked for its own marks", bounds: delta, want: "I6",
			change: func(r *rules) { r.forgetsItsMarks = true },
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := protocol()
			tc.change(&r)
			found := explore(tc.bounds, r, 6_000_000, 2*time.Minute)
			if !strings.HasPrefix(found.violation, tc.want) {
				t.Fatalf("after %d states (complete: %v): %q, want one of %q", found.states, found.complete, firstLine(found.violation), tc.want)
			}
			t.Logf("after %d states, %d steps: %s", found.states, found.depth+1, firstLine(found.violation))
		})
	}
}

func (b bounds) with(change func(*bounds)) bounds {
	change(&b)
	return b
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}
