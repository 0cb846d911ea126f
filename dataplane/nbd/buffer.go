package nbd

import (
	"math/bits"
	"sync"
)

// buffer is a payload buffer from the pool of its size class. Classes are powers of two, so at most half is wasted.
type buffer struct {
	data  []byte // of the requested length
	class int
}

const (
	minClass = 12 // 4 KiB
	maxClass = 25 // 32 MiB, MaxPayload
)

var bufferPools [maxClass + 1]sync.Pool

// getBuffer returns a buffer of n bytes, 0 < n <= MaxPayload, with arbitrary content.
func getBuffer(n int) *buffer {
	class := max(minClass, bits.Len(uint(n-1)))
	if b, ok := bufferPools[class].Get().(*buffer); ok {
		b.data = b.data[:n]
		return b
	}
	return &buffer{data: make([]byte, n, 1<<class), class: class}
}

// release returns the buffer to the pool. The caller must not use it afterwards.
func (b *buffer) release() { bufferPools[b.class].Put(b) }
