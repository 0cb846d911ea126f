package device

import (
	"context"
	"sync"
	"time"
)

// background has the goroutines that a Local starts and no operation waits for: attempts that are repeated until they
// succeed. They end with the Local.
type background struct {
	ctx    context.Context
	cancel context.CancelFunc

	mu    sync.Mutex // held while a goroutine is added, and while ctx ends
	tasks sync.WaitGroup
}

func newBackground() *background {
	b := &background{}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	return b
}

// run starts a goroutine, unless the Local has ended. The goroutine must return soon after ctx has ended.
func (b *background) run(task func(ctx context.Context)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ctx.Err() == nil {
		b.tasks.Go(func() { task(b.ctx) })
	}
}

// end ends all goroutines and waits for them.
func (b *background) end() {
	b.mu.Lock()
	b.cancel()
	b.mu.Unlock()
	b.tasks.Wait()
}

// pauseFor waits for a while, and returns false if ctx ended first.
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
