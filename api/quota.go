package api

import (
	"net/netip"
	"sync"
)

// quota is a limited number of slots for something that clients occupy for a time: connections, requests, streams.
// There is one rule: an address gets another slot while more than three slots are free for each slot that it has. So
//   - an address without competitors gets a quarter of all slots. CSI sends at most some 30 requests at a time, and a
//     daemon that passes on requests needs as many slots as its clients;
//   - the next address gets a quarter of the rest, and so on: it takes about 20 addresses to use up all slots;
//   - an address that has no slot, such as a probe, gets one if any is free.
type quota struct {
	total int

	mu     sync.Mutex
	used   int            // guarded by mu
	usedBy map[source]int // guarded by mu; no entry is 0
}

const freePerSlot = 3

func newQuota(total int) *quota { return &quota{total: total, usedBy: map[source]int{}} }

// acquire takes a slot; release returns it. false: the address has its share, or all slots are used (isFull).
func (p *quota) acquire(s source) (ok, isFull bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	free := p.total - p.used
	if freePerSlot*p.usedBy[s] >= free {
		return false, free <= 0
	}
	p.used++
	p.usedBy[s]++
	return true, false
}

func (p *quota) release(s source) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used--
	if p.usedBy[s]--; p.usedBy[s] == 0 {
		delete(p.usedBy, s)
	}
}

// source is the unit that counts as one address. For IPv4 it is the address. For IPv6 it is the first 64 bits, which
// say in which network a machine is: the machine may choose the other bits itself.
type source netip.Prefix

// sourceOf returns the source of "address:port". Any other text has the zero source.
func sourceOf(remote string) source {
	parsed, err := netip.ParseAddrPort(remote)
	if err != nil {
		return source{}
	}
	address, bits := parsed.Addr().Unmap().WithZone(""), 64
	if address.Is4() {
		bits = 32
	}
	prefix, err := address.Prefix(bits)
	if err != nil {
		return source{}
	}
	return source(prefix)
}
