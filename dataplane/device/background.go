package device

import (
	"context"
	"sync"
	"time"
)

// background runs the goroutines that a Local starts and that no operation waits for: attempts that are repeated until
// they succeed. They stop when the Local is closed.
type background struct {
	ctx    context.Context
	cancel context.CancelFunc

	mu    sync.Mutex // held while a goroutine is added, and while ctx is cancelled
	tasks sync.WaitGroup
}

func newBackground() *background {
	b := &background{}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	return b
}

// run starts a goroutine, unless the Local was closed. The goroutine must return soon after ctx is done.
func (b *background) run(task func(ctx context.Context)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ctx.Err() == nil {
		b.tasks.Go(func() { task(b.ctx) })
	}
}

// end stops all goroutines and waits for them.
func (b *background) end() {
	b.mu.Lock()
	b.cancel()
	b.mu.Unlock()
	b.tasks.Wait()
}

// pauseFor waits for the given time. It returns false if ctx is done first.
func pauseFor(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
