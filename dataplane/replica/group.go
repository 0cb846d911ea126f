package replica

import "sync"

// group allows callers that come during a run to share the next run. So any number of concurrent syncs costs two.
type group struct {
	run func() error

	mu      sync.Mutex
	running bool   // guarded by mu
	next    *round // guarded by mu; the callers that the current run does not cover
}

type round struct {
	done chan struct{} // closed when err is set
	lead chan struct{} // gives one waiting caller the next run
	err  error
}

// do returns the result of a run that started after do was called.
func (g *group) do() error {
	g.mu.Lock()
	r := g.next
	if r == nil {
		r = &round{done: make(chan struct{}), lead: make(chan struct{}, 1)}
		g.next = r
	}
	if g.running {
		g.mu.Unlock()
		select {
		case <-r.done:
			return r.err
		case <-r.lead:
		}
		g.mu.Lock()
	}
	g.running, g.next = true, nil
	g.mu.Unlock()

	r.err = g.run()
	close(r.done)

	g.mu.Lock()
	defer g.mu.Unlock()
	if g.next == nil {
		g.running = false
	} else {
		g.next.lead <- struct{}{} // running stays true: the caller that receives this continues
	}
	return r.err
}
