package faults

import (
	"net"
	"sync"
)

// proxy is between engines and the replicas of one node. When cut, it closes all connections and refuses new ones. When
// stalled, it receives bytes and delays them until it is released.
type proxy struct {
	target   func() string
	listener net.Listener
	serving  sync.WaitGroup

	mu    sync.Mutex
	isCut bool                  // guarded by mu
	conns map[net.Conn]struct{} // guarded by mu; both sides
	open  chan struct{}         // guarded by mu; closed while bytes pass
}

func newProxy(target func() string) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{target: target, listener: l, conns: map[net.Conn]struct{}{}, open: make(chan struct{})}
	close(p.open)
	p.serving.Go(p.accept)
	return p, nil
}

func (p *proxy) address() string { return p.listener.Addr().String() }

func (p *proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.serving.Go(func() { p.serve(c) })
	}
}

func (p *proxy) serve(near net.Conn) {
	defer near.Close()
	address := p.target()
	if address == "" {
		return
	}
	far, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer far.Close()
	if !p.keep(near, far) {
		return
	}
	defer p.forget(near, far)
	var back sync.WaitGroup
	back.Go(func() {
		p.pass(near, far)
		_ = near.Close()
	})
	p.pass(far, near)
	_ = far.Close()
	back.Wait()
}

// pass copies the bytes that arrive, until either side ends.
func (p *proxy) pass(to, from net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		p.mu.Lock()
		open := p.open
		p.mu.Unlock()
		<-open
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (p *proxy) keep(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isCut {
		return false
	}
	for _, c := range conns {
		p.conns[c] = struct{}{}
	}
	return true
}

func (p *proxy) forget(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		delete(p.conns, c)
	}
}

func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isCut = true
	for c := range p.conns {
		_ = c.Close()
	}
}

func (p *proxy) stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if isClosed(p.open) {
		p.open = make(chan struct{})
	}
}

// heal undoes cut and stall.
func (p *proxy) heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isCut = false
	if !isClosed(p.open) {
		close(p.open)
	}
}

func (p *proxy) close() {
	p.heal()
	_ = p.listener.Close()
	p.cut()
	p.heal()
	p.serving.Wait()
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
