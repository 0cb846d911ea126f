package chain

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys/memfs"
)

func TestATooLargeFileIsALackOfSpace(t *testing.T) {
	p := mergeable(t)
	p.f.Before(func(op memfs.Op) error {
		if op.Kind == "write" && op.Name == "2.img" {
			return syscall.EFBIG
		}
		return nil
	})
	require.ErrorIs(t, p.c.WriteAt(make([]byte, block), 8*block), syscall.EFBIG)
	require.NoError(t, p.c.Err())
	p.f.Before(nil)
	do(t, p.check)
}
