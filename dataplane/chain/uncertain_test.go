package chain

import (
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys/memfs"
)

// The list may or may not be replaced after an error of the exchange, or of the sync after it. The new files must stay,
// and the chain must end, even if the error reports a lack of space.
func TestAnUncertainListEndsTheChain(t *testing.T) {
	for _, kind := range []string{"exchange", "syncdir"} {
		for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT} {
			for nth := 1; ; nth++ {
				p := start(t)
				count, last := 0, ""
				p.f.Before(func(op memfs.Op) error {
					hits := op.Kind == kind && (kind == "exchange" || last == "exchange")
					if last = op.Kind; hits {
						if count++; count == nth {
							return errno
						}
					}
					return nil
				})
				err := life(p)
				if count < nth {
					require.NoError(t, err)
					require.Greater(t, nth, 10)
					break
				}
				require.Error(t, err, "%s %d", kind, nth)
				require.ErrorIs(t, p.c.Err(), ErrUncertain, "%s %d: %v", kind, nth, err)
				how := []stopped{failed, powerLost}[nth%2]
				require.NoError(t, p.again(how, rand.New(rand.NewPCG(uint64(nth), 1))), "%s %d", kind, nth)
			}
		}
	}
}
