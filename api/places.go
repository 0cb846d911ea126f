package api

import (
	"net/netip"
	"sync"
)

// places are a limited number of something that clients occupy for a time: connections, requests, streams. There is one
// rule: an address gets another place while more than three places are free for each place that it has. So
//   - an address without competitors gets a quarter of all places. CSI sends at most some 30 requests at a time, and a
//     daemon that passes on requests needs as many places as its clients;
//   - the next address gets a quarter of the rest, and so on: it takes about 20 addresses to use up all places;
//   - an address that has no place, such as a probe, gets one if any is free.
type places struct {
	total int

	mu    sync.Mutex
	taken int            // guarded by mu
	by    map[source]int // guarded by mu; no entry is 0
}

const freeForEach = 3

func newPlaces(total int) *places { return &places{total: total, by: map[source]int{}} }

// enter takes a place; leave returns it. false: the address has its share, or all places are taken (isFull).
func (p *places) enter(s source) (ok, isFull bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	free := p.total - p.taken
	if freeForEach*p.by[s] >= free {
		return false, free <= 0
	}
	p.taken++
	p.by[s]++
	return true, false
}

func (p *places) leave(s source) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken--
	if p.by[s]--; p.by[s] == 0 {
		delete(p.by, s)
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
