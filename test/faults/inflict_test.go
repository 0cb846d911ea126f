package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"

	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
)

// inflict applies a plan to a volume and returns when all its faults are repaired.
func inflict(v *volume, p plan) error {
	var breaking sync.WaitGroup
	errs := make([]error, len(p.faults))
	for i, f := range p.faults {
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

// happen causes a fault and repairs it.
func (f fault) happen(v *volume) error {
	switch f.kind {
	case "api":
		v.object.setAway(true)
		pause(v.ctx, f.last)
		v.object.setAway(false)
	case "overtake":
		v.wish(overtake)
	case "move":
		v.wish(move)
	case "grow":
		v.grow(f.detail)
	default:
		return f.hitAll(v)
	}
	return nil
}

// hitAll hits the nodes of the fault's place at once.
func (f fault) hitAll(v *volume) error {
	var hitting sync.WaitGroup
	errs := make([]error, len(v.nodes))
	for i, n := range f.on.of(v) {
		hitting.Go(func() { errs[i] = f.hit(v, n) })
	}
	hitting.Wait()
	return errors.Join(errs...)
}

// of returns the nodes that the place means now.
func (p place) of(v *volume) []*node {
	if p == everywhere {
		return v.nodes
	}
	if p >= 0 {
		return v.nodes[p : p+1]
	}
	at := v.nodes[0]
	if r, _ := v.current(); r != nil {
		at = r.node
	}
	if p == home {
		return []*node{at}
	}
	return slices.DeleteFunc(slices.Clone(v.nodes), func(n *node) bool { return n == at })
}

func (f fault) hit(v *volume, n *node) error {
	switch f.kind {
	case "remove":
		v.removeMember(n)
	case "evict":
		v.evict(n)
	case "go-local":
		v.goLocal(n)
	case "flood":
		v.flood(f.last)
	case "cut":
		n.proxy.cut()
		pause(v.ctx, f.last)
		n.proxy.heal()
	case "stall":
		n.proxy.stall()
		pause(v.ctx, f.last)
		n.proxy.heal()
	case "drop":
		return f.dropCaches(n)
	case slowSyncs, failedSyncs, failedMarks, failedMeta:
		call := v.history.now()
		if err := n.orderSyncs(f.kind, f.takes); err != nil {
			return err
		}
		pause(v.ctx, f.last)
		if f.kind == failedSyncs { // unflushed data may be lost now, and when the replica is opened again
			v.history.losePower(call)
			v.mayLose.CompareAndSwap(0, call)
		}
		return n.mendSyncs()
	default:
		return f.hitProcess(v, n)
	}
	return nil
}

// dropCaches orders a node to drop its caches, unless its process does not run.
func (f fault) dropCaches(n *node) error {
	if !n.process.TryLock() {
		return nil
	}
	defer n.process.Unlock()
	if c, _ := n.now(); c == nil {
		return nil
	}
	return n.dropCaches()
}

// hitProcess causes the faults of a node's process and disk, one at a time per node. A fault that comes while another
// one lasts does not happen.
func (f fault) hitProcess(v *volume, n *node) error {
	if !n.process.TryLock() {
		return nil
	}
	defer n.process.Unlock()
	disk, ok := n.diskDir()
	losesPower := f.kind == "power" || f.kind == "blackout" && f.detail>>(n.number-1)&1 != 0
	switch {
	case losesPower && ok:
		if err := v.losePower(n); err != nil {
			return err
		}
		pause(v.ctx, f.last)
		return n.start()
	case f.kind == "kill", f.kind == "power", f.kind == "blackout":
		if err := n.kill(); err != nil {
			return err
		}
		pause(v.ctx, f.last)
		return n.start()
	case f.kind == "pause":
		if err := n.signal(syscall.SIGSTOP); err != nil {
			return err
		}
		pause(v.ctx, f.last)
		return n.signal(syscall.SIGCONT)
	case f.kind == "break" && ok:
		if err := breakDisk(disk); err != nil {
			return err
		}
		pause(v.ctx, f.last)
		return errors.Join(n.kill(), n.start())
	case f.kind == "freeze" && ok:
		return f.freeze(v, disk)
	case ok && (f.kind == "full" || f.kind == "choke"):
		return f.fill(v, n, disk)
	}
	return nil
}

// losePower makes a node lose its power, and records the time.
func (v *volume) losePower(n *node) error {
	call := v.history.now()
	if err := n.losePower(); err != nil {
		return err
	}
	v.history.losePower(call)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.seen.powerLosses++
	return nil
}

// fill fills a disk for a while; with "choke" the process dies before there is space again.
func (f fault) fill(v *volume, n *node, disk string) error {
	err := fillDisk(disk, f.detail>>(2*(n.number-1))&3)
	pause(v.ctx, f.last)
	if f.kind == "choke" {
		err = errors.Join(err, n.kill(), n.start())
		disk, _ = n.diskDir()
	}
	return errors.Join(err, emptyDisk(disk))
}

// freeze makes a disk hang for a while.
func (f fault) freeze(v *volume, disk string) error {
	thaw, err := freeze(disk)
	if err != nil {
		return err
	}
	v.mu.Lock()
	v.seen.freezes++
	v.mu.Unlock()
	pause(v.ctx, f.last)
	return thaw()
}

// removeMember expels a healthy replica. The engine may refuse this.
func (v *volume) removeMember(n *node) {
	if r, _ := v.current(); r != nil {
		m := v.member(n)
		v.call("remove member", r.node, func(ctx context.Context, c *child) error {
			_, err := c.client.EngineRemoveReplica(ctx, &proto.EngineMemberRequest{Name: v.engineName(), Session: r.session, Member: m})
			return err
		})
	}
}

// Some faults may remain after faults overlapped: this function repairs them.
func mend(v *volume) error {
	v.object.setAway(false)
	v.rate.Store(0)
	var errs []error
	for _, n := range v.nodes {
		n.proxy.heal()
		errs = append(errs, n.mendSyncs())
		if c, _ := n.now(); c == nil {
			errs = append(errs, n.start())
		}
	}
	return errors.Join(errs...)
}
