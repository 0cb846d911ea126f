package membership

import (
	"fmt"
	"slices"
	"strings"
)

// Epoch names the replicas that hold every acknowledged write. The zero Epoch means "none yet".
type Epoch struct {
	Generation int64    `json:"generation"`
	Counter    int64    `json:"counter"`
	Members    []string `json:"members"` // replica names, sorted, no duplicates
}

// NewEpoch returns an epoch with its members sorted and made unique.
func NewEpoch(generation, counter int64, members []string) Epoch {
	m := slices.Clone(members)
	slices.Sort(m)
	return Epoch{Generation: generation, Counter: counter, Members: slices.Compact(m)}
}

// IsZero reports whether there is no epoch yet.
func (e Epoch) IsZero() bool { return e.Generation == 0 && e.Counter == 0 }

// Compare orders epochs by generation, then counter: -1, 0 or 1.
func (e Epoch) Compare(o Epoch) int {
	switch {
	case e.Generation != o.Generation:
		return sign(e.Generation - o.Generation)
	default:
		return sign(e.Counter - o.Counter)
	}
}

// Equal reports whether both are the same epoch with the same members.
func (e Epoch) Equal(o Epoch) bool {
	return e.Compare(o) == 0 && slices.Equal(e.Members, o.Members)
}

// Foreign reports whether e is neither the recorded epoch nor before it: it is newer, or its number was given twice.
func (e Epoch) Foreign(recorded Epoch) bool { return e.Compare(recorded) >= 0 && !e.Equal(recorded) }

// Has reports whether a replica is a member.
func (e Epoch) Has(replica string) bool { return slices.Contains(e.Members, replica) }

// String returns the form for messages: 4.1[a b c].
func (e Epoch) String() string {
	if e.IsZero() {
		return "none"
	}
	return fmt.Sprintf("%d.%d[%s]", e.Generation, e.Counter, strings.Join(e.Members, " "))
}

func sign(n int64) int {
	switch {
	case n < 0:
		return -1
	case n > 0:
		return 1
	}
	return 0
}
