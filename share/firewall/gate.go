package firewall

import (
	"fmt"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
)

// gateTable comes before all others: packets that it drops reach neither connection tracking nor another table.
const gateTable = "longhorn-share-gate"

// confirmationTTL is how long a confirmed question opens the port, counted from before the question.
const confirmationTTL = 4 * time.Second

// UnreachableAfter is how long after the last limited question of its share manager a server reaches no client. It is
// confirmationTTL, and a second for clocks that run at slightly different speeds.
const UnreachableAfter = confirmationTTL + time.Second

// slots is how many questions the kernel knows: the one under way, and the last confirmed one.
const slots = 2

// gate lets packets to and from a port pass only while a question is confirmed and not too old. This applies to
// established connections, too. The kernel measures the time. So if a process is paused, the port closes as if the
// process got no answer.
//
//	before a question       the slot's element is armed: from here on the kernel counts
//	the answer is yes       the slot is confirmed
//	packet                  passes if one slot is armed and confirmed
//
// If a process pauses between the answer and the confirmation, it confirms a slot with a time that is over, and opens
// nothing. So no step of the process has a deadline.
//
// Packets from this machine to itself always pass. Other packets that do not pass get no answer, not even a reset. A
// client sends them again, and has lost nothing when the port opens again.
type gate struct {
	port int
	ttl  time.Duration
}

// The state "open without limit" has its own slot.
const withoutLimit = slots

func (g gate) key() []byte { return binaryutil.BigEndian.PutUint16(uint16(g.port)) }

func (g gate) table() *nftables.Table {
	return &nftables.Table{Family: nftables.TableFamilyINet, Name: gateTable}
}

// set is one of a slot's two sets. Each contains the port or nothing.
func (g gate) set(kind string, slot int) *nftables.Set {
	return &nftables.Set{Table: g.table(), Name: fmt.Sprintf("%s%d", kind, slot), KeyType: nftables.TypeInetService, HasTimeout: true}
}

func (g gate) armed(slot int) *nftables.Set     { return g.set("armed", slot) }
func (g gate) confirmed(slot int) *nftables.Set { return g.set("confirmed", slot) }

// change makes changes in one step.
func (g gate) change(what string, do func(c *nftables.Conn) error) error {
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("connecting to nftables: %w", err)
	}
	if err := do(c); err != nil {
		return fmt.Errorf("%s port %d: %w", what, g.port, err)
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("%s port %d with nftables: %w", what, g.port, err)
	}
	return nil
}

// install adds the rules, in place of the rules of an earlier process of this pod. After it the port is closed.
func (g gate) install() error {
	return g.change("adding the rules for", func(c *nftables.Conn) error {
		c.AddTable(g.table()) // so that there is a table to delete
		c.DelTable(g.table())
		table := c.AddTable(g.table())
		var passes [slots + 1][2]*nftables.Set
		for slot := range passes {
			passes[slot] = [2]*nftables.Set{g.armed(slot), g.confirmed(slot)}
			for _, set := range passes[slot] {
				set.Table = table
				if err := c.AddSet(set, nil); err != nil {
					return err
				}
			}
		}
		for _, direction := range []struct {
			name  string
			hook  *nftables.ChainHook
			port  uint32
			local []expr.Any
		}{
			{"in", nftables.ChainHookPrerouting, destinationPort, isFrom(itself)},
			{"out", nftables.ChainHookOutput, sourcePort, isTo(itself)},
		} {
			chain := c.AddChain(&nftables.Chain{
				Name: direction.name, Table: table, Type: nftables.ChainTypeFilter, Hooknum: direction.hook, Priority: nftables.ChainPriorityRaw,
			})
			rule := func(parts ...[]expr.Any) {
				c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: join(parts...)})
			}
			accept, drop := []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}}, []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}}
			rule(direction.local, accept)
			for _, pair := range passes {
				rule(isTCP(), []expr.Any{header(direction.port, 2), isIn(pair[0]), isIn(pair[1])}, accept)
			}
			rule(isTCP(), hasPort(direction.port, g.port), drop)
		}
		return nil
	})
}

// isIn matches the last loaded value against a set.
func isIn(s *nftables.Set) expr.Any {
	return &expr.Lookup{SourceRegister: 1, SetName: s.Name, SetID: s.ID}
}

// arm starts the time of a slot, which is unconfirmed from here on.
func (g gate) arm(slot int) error {
	return g.change("starting the timer of", func(c *nftables.Conn) error {
		c.FlushSet(g.confirmed(slot))
		c.FlushSet(g.armed(slot))
		return c.SetAddElements(g.armed(slot), []nftables.SetElement{{Key: g.key(), Timeout: g.ttl}})
	})
}

// confirm opens the port for the rest of a slot's time.
func (g gate) confirm(slot int) error {
	return g.change("opening", func(c *nftables.Conn) error {
		return c.SetAddElements(g.confirmed(slot), []nftables.SetElement{{Key: g.key()}})
	})
}

// open opens the port without limit.
func (g gate) open() error {
	return g.change("opening", func(c *nftables.Conn) error {
		for _, set := range []*nftables.Set{g.armed(withoutLimit), g.confirmed(withoutLimit)} {
			if err := c.SetAddElements(set, []nftables.SetElement{{Key: g.key()}}); err != nil {
				return err
			}
		}
		return nil
	})
}

// limit makes a port that is open without limit close after the time of a slot.
func (g gate) limit(slot int) error {
	return g.change("limiting", func(c *nftables.Conn) error {
		for _, s := range []int{slot, withoutLimit} {
			c.FlushSet(g.armed(s))
			c.FlushSet(g.confirmed(s))
		}
		if err := c.SetAddElements(g.armed(slot), []nftables.SetElement{{Key: g.key(), Timeout: g.ttl}}); err != nil {
			return err
		}
		return c.SetAddElements(g.confirmed(slot), []nftables.SetElement{{Key: g.key()}})
	})
}

// close closes the port at once.
func (g gate) close() error {
	return g.change("closing", func(c *nftables.Conn) error {
		for slot := range slots + 1 {
			c.FlushSet(g.armed(slot))
			c.FlushSet(g.confirmed(slot))
		}
		return nil
	})
}

// remove removes the rules: the port is open as if they had never existed.
func (g gate) remove() error {
	return g.change("removing the rules for", func(c *nftables.Conn) error {
		c.AddTable(g.table())
		c.DelTable(g.table())
		return nil
	})
}
