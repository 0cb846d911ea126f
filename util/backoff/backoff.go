// Package backoff computes how long to wait before a failed operation is tried again.
package backoff

import "time"

// After is first, doubled n times, and at most most. A negative n counts as 0.
func After(first, most time.Duration, n int) time.Duration {
	for ; n > 0 && 0 < first && first <= most/2; n-- {
		first *= 2
	}
	if n > 0 && first > 0 {
		return most
	}
	return min(first, most)
}
