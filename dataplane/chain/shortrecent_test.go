package chain

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

// The recent of the head is missing, or an opening was killed while it created the file. The next opening creates it
// again, and distrusts the replica: the lost one may have had entries.
func TestAnOpeningCreatesALostRecentAgain(t *testing.T) {
	whole := recent{uid: testUID, n: 2, boot: "boot-1", capacity: 16}
	for name, content := range map[string][]byte{
		"missing":                      nil,
		"empty":                        {},
		"the header alone":             whole.header(),
		"the header and a few entries": append(whole.header(), make([]byte, recentFileBytes(4)-recentHeadBytes)...),
	} {
		t.Run(name, func(t *testing.T) {
			p := start(t)
			do(t, func() error { return p.write(0, 4*block) }, p.snapshot,
				func() error { return p.write(block, block) }, p.flush, func() error { return p.dir.Unlink("2.recent") })
			if content != nil {
				f, err := p.dir.OpenFile("2.recent", fsys.CreateNew)
				require.NoError(t, err)
				require.NoError(t, f.WriteAt(content, 0))
			}
			p.f.Kill()
			d, err := p.f.OpenDir(testDir)
			require.NoError(t, err)
			c, err := Open(d, Options{UID: testUID, BootID: p.bootID(), SameSuperblock: true, ReadOnly: true})
			require.NoError(t, err)
			assert.Equal(t, layers.Trust{Distrust: true, DropCache: false}, c.Trust())
			do(t, c.Close, func() error { return p.again(killed, nil) })
			assert.True(t, p.c.Trust().Distrust, "the file may have had entries")
			do(t, func() error { return p.write(6*block, block) }, func() error { return p.again(killed, nil) })
			assert.Equal(t, layers.Trust{Recent: true}, p.c.Trust())
		})
	}
}
