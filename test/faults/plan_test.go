package faults

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/longhorn-lep/longhorn-manager/instance/proto"
)

// fault is one thing that breaks at a time, on a node if it is of that kind, and is mended after a while.
type fault struct {
	kind string
	node int
	at   time.Duration // after the beginning of the plan
	last time.Duration
}

func (f fault) String() string {
	return fmt.Sprintf("%v %s node %d for %v", f.at, f.kind, f.node+1, f.last)
}

// How likely each kind is, as parts of their sum.
var kinds = []struct {
	kind  string
	parts int
}{
	{"kill", 4}, {"cut", 4}, {"pause", 2}, {"stall", 2}, {"full", 2}, {"break", 2}, {"api", 3}, {"overtake", 3}, {"move", 2}, {"remove", 2},
}

const planTime = 150 * time.Millisecond

// newPlan draws one to five faults, which may overlap.
func newPlan(rng *rand.Rand) []fault {
	total := 0
	for _, k := range kinds {
		total += k.parts
	}
	ms := func(n int64) time.Duration { return time.Duration(rng.Int64N(n)) * time.Millisecond }
	plan := make([]fault, 1+rng.IntN(5))
	for i := range plan {
		draw := rng.IntN(total)
		for _, k := range kinds {
			if draw -= k.parts; draw < 0 {
				plan[i] = fault{kind: k.kind, node: rng.IntN(nodeCount), at: ms(planTime.Milliseconds()), last: 5*time.Millisecond + ms(100)}
				break
			}
		}
	}
	slices.SortFunc(plan, func(a, b fault) int { return cmp.Compare(a.at, b.at) })
	return plan
}

func describe(plan []fault) string {
	var out []string
	for _, f := range plan {
		out = append(out, f.String())
	}
	return strings.Join(out, "; ")
}

// inflict lets a plan happen to a volume and returns when all of it is mended.
func inflict(v *volume, plan []fault) error {
	var breaking sync.WaitGroup
	errs := make([]error, len(plan))
	for i, f := range plan {
		breaking.Go(func() {
			pause(v.ctx, f.at)
			if err := f.happen(v); err != nil {
				errs[i] = fmt.Errorf("%v: %w", f, err)
			}
		})
	}
	breaking.Wait()
	return errors.Join(append(errs, mend(v))...)
}

// happen breaks something and mends it.
func (f fault) happen(v *volume) error {
	n := v.nodes[f.node]
	switch f.kind {
	case "api":
		v.object.setAway(true)
		pause(v.ctx, f.last)
		v.object.setAway(false)
	case "overtake":
		v.wish(overtake)
	case "move":
		v.wish(move)
	case "remove":
		return v.removeMember(n)
	case "cut":
		n.proxy.cut()
		pause(v.ctx, f.last)
		n.proxy.heal()
	case "stall":
		n.proxy.stall()
		pause(v.ctx, f.last)
		n.proxy.heal()
	default:
		return f.hitProcess(v.ctx, n)
	}
	return nil
}

// hitProcess has the faults of a node's process and disk, one at a time per node: what comes while another lasts does not happen.
func (f fault) hitProcess(ctx context.Context, n *node) error {
	if !n.process.TryLock() {
		return nil
	}
	defer n.process.Unlock()
	disk, ok := n.diskDir()
	switch {
	case f.kind == "kill":
		if err := n.kill(); err != nil {
			return err
		}
		pause(ctx, f.last)
		return n.start()
	case f.kind == "pause":
		if err := n.signal(syscall.SIGSTOP); err != nil {
			return err
		}
		pause(ctx, f.last)
		return n.signal(syscall.SIGCONT)
	case f.kind == "full" && ok:
		err := fillDisk(disk)
		pause(ctx, f.last)
		return errors.Join(err, emptyDisk(disk))
	case f.kind == "break" && ok:
		if err := breakDisk(disk); err != nil {
			return err
		}
		pause(ctx, f.last)
		return errors.Join(n.kill(), n.start())
	}
	return nil
}

// removeMember has a replica expelled that did nothing wrong. It may be refused.
func (v *volume) removeMember(n *node) error {
	if r, _ := v.current(); r != nil {
		v.call("remove member", r.node, func(ctx context.Context, c *child) error {
			_, err := c.client.EngineRemoveReplica(ctx, &proto.EngineMemberRequest{Name: v.engineName(), Session: r.session, Member: v.member(n)})
			return err
		})
	}
	return nil
}

// mend undoes what may still be broken when faults overlapped.
func mend(v *volume) error {
	v.object.setAway(false)
	var errs []error
	for _, n := range v.nodes {
		n.proxy.heal()
		if c, _ := n.now(); c == nil {
			errs = append(errs, n.start())
		}
	}
	return errors.Join(errs...)
}
