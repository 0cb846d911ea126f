package faults

import (
	"bytes"
	"context"
	"sync"
	"time"
)

const (
	floodBytes   = 1 << 20
	floodWriters = 8
)

func floodOffset(writer int) int64 {
	return int64(writer%(regionCount-1))*regionBytes + floodBytes + int64(writer/(regionCount-1))*floodBytes
}

// flood writes outside of the clients' blocks, more at once than sockets hold. Only the comparison of the replicas at
// the end reads it back.
func (v *volume) flood(last time.Duration) {
	r, _ := v.current()
	if r == nil || !isClosed(r.served) {
		return
	}
	ctx, cancel := context.WithTimeout(v.ctx, last)
	defer cancel()
	b, err := v.connect(ctx, r)
	if err != nil {
		return
	}
	defer b.Close()
	var writing sync.WaitGroup
	for i := range floodWriters {
		writing.Go(func() {
			p := bytes.Repeat([]byte{byte(i + 1)}, floodBytes)
			for ctx.Err() == nil {
				if b.WriteAt(ctx, p, floodOffset(i), false) != nil && ctx.Err() == nil {
					return // it was refused
				}
				v.mu.Lock()
				v.seen.floods++
				v.mu.Unlock()
			}
		})
	}
	writing.Wait()
}
