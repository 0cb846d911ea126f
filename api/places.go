package api

import (
	"net/netip"
	"sync"
)

// places are a bounded number of something that clients take for a time: connections, requests, streams. This is the one rule of who
// gets one: an address gets another place while more than three are free for each that it has. So
//   - one address alone gets a quarter of all. CSI asks for no more than some 30 requests at a time, and a daemon that passes requests on
//     needs as many places as its clients;
//   - the next one gets a quarter of the rest, and so on: it takes about 20 addresses to leave nothing;
//   - who has none, such as a probe, gets one as long as there is one.
type places struct {
	total int

	mu    sync.Mutex
	taken int            // guarded by mu
	by    map[source]int // guarded by mu; none with 0
}

const freeForEach = 3

func newPlaces(total int) *places { return &places{total: total, by: map[source]int{}} }

// enter takes a place, which leave gives back. false: the address has its share, or isFull.
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

// source is what counts as one address: an address of IPv4, or the 64 bits of one of IPv6 that say in which network a machine is, as it may
// choose the others itself.
type source netip.Prefix

// sourceOf returns the source of "address:port". What is none has the zero source.
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
