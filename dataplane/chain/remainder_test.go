package chain

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys/memfs"
)

// Power is lost before the removal of a sealed file's recent is durable. Later the file is part of the head again. Its
// old recent says nothing about the present boot.
func TestTheRecentOfASealedFileDoesNotCount(t *testing.T) {
	p := start(t)
	do(t, func() error { return p.write(0, 9*block) }, p.snapshot, func() error { return p.write(block, block) },
		p.prepare, p.doSwitch)
	p.f.Before(func(op memfs.Op) error {
		if op.Kind == "unlink" && op.Name == "2.recent" {
			return memfs.ErrCrashed
		}
		return nil
	})
	do(t, p.seal)
	require.NoError(t, p.again(powerLost, rand.New(rand.NewPCG(1, 1))))
	require.NoError(t, onlyListed(p))
	do(t, func() error { return p.remove(1) }, func() error { return p.write(7*block, block) })
	require.NoError(t, p.again(killed, nil))
	assert.Equal(t, layers.Trust{Recent: true}, p.c.Trust())
}
