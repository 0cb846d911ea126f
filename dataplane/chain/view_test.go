package chain

import (
	"context"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys/memfs"
)

// openingDir calls a function before a file is opened for reading, once.
type openingDir struct {
	fsys.Dir
	name   string
	before *func()
}

func (d openingDir) OpenFile(name string, mode fsys.Mode) (fsys.File, error) {
	if do := *d.before; name == d.name && mode == fsys.ReadOnly && do != nil {
		*d.before = nil
		do()
	}
	return d.Dir.OpenFile(name, mode)
}

// reopen opens the replica of a player again through an openingDir. Sealed files are opened when they are needed.
func (p *player) reopen(t *testing.T, name string) *func() {
	t.Helper()
	require.NoError(t, errOf(p.flush(), p.c.Close()))
	p.f.Kill()
	d, err := p.f.OpenDir(testDir)
	require.NoError(t, err)
	before := new(func())
	p.c, err = Open(openingDir{d, name, before}, Options{UID: testUID, BootID: p.bootID(), SameSuperblock: true})
	require.NoError(t, err)
	return before
}

func errOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func layeredReplica(t *testing.T) *player {
	t.Helper()
	p := start(t)
	do(t, func() error { return p.write(0, testSize) }, p.snapshot, func() error { return p.write(block, block) }, p.snapshot,
		func() error { return p.write(3*block, block) }, p.snapshot)
	return p
}

// Opening the files of a view may take long. A switch does not wait for it.
func TestAViewOpensItsFilesWithoutDelayingASwitch(t *testing.T) {
	p := layeredReplica(t)
	before := p.reopen(t, "2.img")
	do(t, p.prepare)
	free := false
	*before = func() {
		if free = p.c.lane.TryLock(); free {
			p.c.lane.Unlock()
			assert.NoError(t, p.doSwitch())
		}
	}
	do(t, func() error { return p.checkView(p.ready()[1]) })
	require.True(t, free)
	do(t, p.seal, p.check)
}

// A merge removes a file while a view opens its files. The view finds the content in the other file.
func TestAViewOfAFileThatIsMergedMeanwhile(t *testing.T) {
	p := layeredReplica(t)
	before := p.reopen(t, "3.img")
	point := p.ready()[2]
	merged := false
	*before = func() {
		assert.NoError(t, p.remove(0))
		_, _, err := p.c.Merge(context.Background())
		assert.NoError(t, err)
		merged = !slices.Contains(fileNumbers(p.c.Layers()), 2)
	}
	do(t, func() error { return p.checkView(point) })
	require.True(t, merged)
	require.Empty(t, p.c.views)
	do(t, p.check)
}

// A file of a view is missing for another reason.
func TestAViewThatCannotOpenAFileFails(t *testing.T) {
	p := layeredReplica(t)
	p.reopen(t, "2.img")
	require.NoError(t, p.dir.Close())
	require.NoError(t, p.c.dir.Unlink("2.img"))
	_, err := p.c.View(p.ready()[1])
	require.ErrorIs(t, err, syscall.ENOENT)
	require.Empty(t, p.c.views)
}

// The next opening distrusts the replica only if data may be lost.
func TestAFailureNamesItsCause(t *testing.T) {
	for name, tc := range map[string]struct {
		fails   func(op memfs.Op) bool
		cause   Cause
		believe bool
	}{
		"a sync":  {func(op memfs.Op) bool { return op.Kind == "datasync" }, FailedSync, false},
		"a write": {func(op memfs.Op) bool { return op.Kind == "write" && op.Name == "3.img" }, DiskError, false},
		"a list":  {func(op memfs.Op) bool { return op.Kind == "exchange" }, UncertainReplacement, true},
	} {
		t.Run(name, func(t *testing.T) {
			p := start(t)
			do(t, p.snapshot, p.snapshot)
			require.Equal(t, NotFailed, p.c.Cause())
			p.f.Before(func(op memfs.Op) error {
				if tc.fails(op) {
					return syscall.EIO
				}
				return nil
			})
			require.Error(t, errOf(p.c.WriteAt(make([]byte, block), 0), p.c.Datasync(), p.c.Prepare(layers.Point{Number: 9}, layers.MostFiles)))
			require.Equal(t, tc.cause, p.c.Cause())
			p.f.Kill()
			require.NoError(t, p.open())
			require.Equal(t, tc.believe, p.c.Trust().Recent)
			require.NoError(t, p.c.Close())
			require.Equal(t, Closed, p.c.Cause())
		})
	}
}
