package faults

import (
	"math/rand/v2"
	"time"
)

// growth is not a real fault: it requests a larger volume.
func growth(rng *rand.Rand, at time.Duration) fault {
	return fault{kind: "grow", at: at, detail: rng.IntN(4)}
}

// brokenGrowth makes the volume larger, and again. During that it kills processes or takes the power of nodes.
func brokenGrowth(rng *rand.Rand) plan {
	at := between(rng, 10*time.Millisecond, 60*time.Millisecond)
	p := plan{story: "broken growth", faults: []fault{growth(rng, at)}}
	for range 1 + rng.IntN(2) {
		p.faults = append(p.faults, fault{
			kind: pick(rng, []chance[string]{{"kill", 2}, {"power", 3}, {"blackout", 3}, {"cut", 1}, {"pause", 1}, {"freeze", 1}, {"break", 1}}),
			on:   pick(rng, []chance[place]{{home, 2}, {elsewhere, 1}, {place(rng.IntN(nodeCount)), 3}}),
			at:   at + between(rng, 0, 25*time.Millisecond), last: between(rng, 5*time.Millisecond, longest), detail: 1 + rng.IntN(1<<nodeCount-1),
		})
	}
	if rng.IntN(2) == 0 {
		p.faults = append(p.faults, growth(rng, at+between(rng, 0, 40*time.Millisecond)))
	}
	return p
}

// awayMeanwhile makes the volume larger, and writes to the new range, while a member is away. Then the other members
// may lose their power.
func awayMeanwhile(rng *rand.Rand) plan {
	at := between(rng, 10*time.Millisecond, 40*time.Millisecond)
	p := plan{story: "away meanwhile", faults: []fault{
		{
			kind: pick(rng, []chance[string]{{"kill", 2}, {"power", 2}, {"stall", 1}, {"pause", 1}}), on: place(rng.IntN(nodeCount)),
			at: at, last: between(rng, 80*time.Millisecond, 250*time.Millisecond),
		},
		growth(rng, at+between(rng, 5*time.Millisecond, 70*time.Millisecond)),
	}}
	if rng.IntN(2) == 0 {
		p.faults = append(p.faults, fault{
			kind: "power", on: place(rng.IntN(nodeCount)), at: at + between(rng, 80*time.Millisecond, 300*time.Millisecond), last: 5 * time.Millisecond,
		})
	}
	return p
}

// noRoomToGrow fills disks, then makes the volume larger. Some of the processes die before there is space again.
func noRoomToGrow(rng *rand.Rand) plan {
	at := between(rng, 10*time.Millisecond, 60*time.Millisecond)
	return plan{story: "no room to grow", faults: []fault{
		{
			kind: pick(rng, []chance[string]{{"full", 1}, {"choke", 1}}), on: pick(rng, []chance[place]{{home, 1}, {elsewhere, 1}, {everywhere, 1}}),
			at: at, last: between(rng, 40*time.Millisecond, longest), detail: spare(rng),
		},
		growth(rng, at+between(rng, 5*time.Millisecond, 40*time.Millisecond)),
	}}
}

// brokenMove moves a replica. It breaks the node that the replica leaves, the node that it goes to, or one that stays.
func brokenMove(rng *rand.Rand) plan {
	at := between(rng, 10*time.Millisecond, 60*time.Millisecond)
	p := plan{story: "broken move", replicas: nodeCount - 1, faults: []fault{
		{kind: pick(rng, []chance[string]{{"evict", 2}, {"go-local", 1}}), on: pick(rng, []chance[place]{{home, 1}, {place(rng.IntN(nodeCount)), 2}}), at: at},
	}}
	for range 1 + rng.IntN(2) {
		p.faults = append(p.faults, fault{
			kind: pick(rng, []chance[string]{{"kill", 2}, {"power", 3}, {"blackout", 2}, {"overtake", 2}, {"move", 1}, {"stall", 1}, {"api", 1}, {"evict", 1}}),
			on:   place(rng.IntN(nodeCount)), at: at + between(rng, 5*time.Millisecond, 120*time.Millisecond),
			last: between(rng, 5*time.Millisecond, longest), detail: 1 + rng.IntN(1<<nodeCount-1),
		})
	}
	return p
}

// interruptedCopy moves a replica, so that all data is copied to a new one, slowly. It interrupts the copy, perhaps
// twice.
func interruptedCopy(rng *rand.Rand) plan {
	at := between(rng, 180*time.Millisecond, 220*time.Millisecond) // most clients rest by then
	p := plan{story: "interrupted copy", replicas: nodeCount - 1, copyRate: 256 << 10, faults: []fault{
		{kind: "evict", on: place(rng.IntN(nodeCount)), at: at},
	}}
	for range 1 + rng.IntN(2) {
		at += between(rng, 70*time.Millisecond, 180*time.Millisecond)
		p.faults = append(p.faults, fault{
			kind: pick(rng, []chance[string]{{"kill", 3}, {"power", 3}, {"blackout", 2}, {"overtake", 3}, {"move", 2}, {"cut", 2}, {"stall", 1}, {"api", 1}}),
			on:   pick(rng, []chance[place]{{home, 1}, {place(rng.IntN(nodeCount)), 3}}), at: at,
			last: between(rng, 5*time.Millisecond, 60*time.Millisecond), detail: 1 + rng.IntN(1<<nodeCount-1),
		})
	}
	return p
}

// growsAndMoves does both at once, in either order, perhaps with a fault in between.
func growsAndMoves(rng *rand.Rand) plan {
	at := between(rng, 10*time.Millisecond, 60*time.Millisecond)
	p := plan{story: "grows and moves", replicas: nodeCount - 1, faults: []fault{
		growth(rng, at+between(rng, 0, 50*time.Millisecond)),
		{kind: pick(rng, []chance[string]{{"evict", 1}, {"go-local", 1}}), on: place(rng.IntN(nodeCount)), at: at + between(rng, 0, 50*time.Millisecond)},
	}}
	if rng.IntN(2) == 0 {
		p.faults = append(p.faults, fault{
			kind: pick(rng, []chance[string]{{"kill", 1}, {"power", 1}, {"overtake", 1}, {"full", 1}}), on: place(rng.IntN(nodeCount)),
			at: at + between(rng, 0, 80*time.Millisecond), last: between(rng, 5*time.Millisecond, longest), detail: spare(rng),
		})
	}
	return p
}
