package api

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

// fill takes as many slots as a source can get.
func fill(p *quota, s source) (got int) {
	for got <= p.total {
		if ok, _ := p.acquire(s); !ok {
			break
		}
		got++
	}
	return got
}

// TestOneAddressLeavesSlotsForOthers: the first address gets a quarter of the slots. After twenty addresses there is
// still one slot for an address that has none.
func TestOneAddressLeavesSlotsForOthers(t *testing.T) {
	p := newQuota(1024)
	var got []int
	for i := range 20 {
		got = append(got, fill(p, sourceOf(fmt.Sprintf("192.0.2.%d:1000", i))))
	}
	assert.Equal(t, []int{256, 192, 144, 108, 81, 61, 46, 34, 26, 19, 15, 11, 8, 6, 5, 3, 3, 2, 1, 1}, got)
	probe := sourceOf("198.51.100.1:1000")
	ok, _ := p.acquire(probe)
	assert.True(t, ok)
	ok, isFull := p.acquire(probe)
	assert.False(t, ok)
	assert.False(t, isFull)

	p.release(probe)
	for i, n := range got {
		for range n {
			p.release(sourceOf(fmt.Sprintf("192.0.2.%d:1000", i)))
		}
	}
	assert.Empty(t, p.usedBy)
	assert.Equal(t, 256, fill(p, probe), "what is left is there again")

	p = newQuota(1)
	assert.Equal(t, 1, fill(p, probe))
	_, isFull = p.acquire(sourceOf("192.0.2.1:1000"))
	assert.True(t, isFull)
}

// TestTheLimitsAreConsistent: there are enough connections for all that one address may do at a time.
func TestTheLimitsAreConsistent(t *testing.T) {
	alone := func(total int) int { return fill(newQuota(total), source{}) }
	assert.Equal(t, 64, alone(DefaultLimits.Requests))
	assert.Equal(t, 128, alone(DefaultLimits.Streams))
	assert.Less(t, alone(DefaultLimits.Requests)+alone(DefaultLimits.Streams), alone(maxConnections))
}

func TestSourceOf(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		same bool
	}{
		{"192.0.2.1:1000", "192.0.2.1:1001", true},
		{"192.0.2.1:1000", "192.0.2.2:1000", false},
		{"192.0.2.1:1000", "[::ffff:192.0.2.1]:1000", true},
		{"[2001:db8::1]:1000", "[2001:db8::ffff:ffff:ffff:ffff]:1000", true},
		{"[2001:db8::1]:1000", "[2001:db8:0:1::1]:1000", false},
		{"[fe80::1%eth0]:1000", "[fe80::1%eth1]:1000", true},
		{"pipe", "@", true},
		{"pipe", "0.0.0.0:1", false},
	} {
		assert.Equal(t, tc.same, sourceOf(tc.a) == sourceOf(tc.b), "%s and %s", tc.a, tc.b)
	}
}
