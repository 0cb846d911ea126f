package replica

import (
	"errors"
	"fmt"

	"github.com/longhorn-lep/longhorn-manager/dataplane/chain"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

// errDistrusted says that the chain of layers may lack writes.
var errDistrusted = errors.New("changes since the last sync may be missing: the machine was restarted, a sync failed, or the disk is not provably still mounted")

// layersBoot identifies the time in which the page cache lost nothing of the layers, so what was written counts although
// it was not synced. This is the boot, and the mount if it is known. A mount keeps its file system alive, and the
// cache with it. Its number belongs to no other mount of this boot. So a disk that was unmounted, or was unplugged and
// mounted again, has another number, whatever was mounted where in between. If boot is "", the result is "".
func layersBoot(dir fsys.Dir, boot string) string {
	id, known := mountOf(dir)
	if !known || boot == "" {
		return boot
	}
	return fmt.Sprintf("%s/%d", boot, id)
}

// isMountKnown reports whether the same result of layersBoot proves that the disk was mounted all the time.
func isMountKnown(dir fsys.Dir) bool {
	_, known := mountOf(dir)
	return known
}

func mountOf(dir fsys.Dir) (id uint64, known bool) {
	if m, ok := dir.(fsys.Mounted); ok {
		return m.MountID()
	}
	return 0, false
}

// inspectLayers checks the files of a chain as far as an opening for reading only does, and writes nothing. Such an
// opening keeps the chain.
func (r *Replica) inspectLayers() error {
	c, err := chain.Open(r.dir, chain.Options{
		UID: r.meta.UID, Generation: r.meta.Layers, BootID: r.opts.BootID, Clean: r.meta.Clean, ReadOnly: true,
		SameSuperblock: r.opts.BootID != "" && r.meta.BootID == r.opts.BootID, // the best guess of a reader
	})
	if err != nil {
		return r.refuseLayers(err)
	}
	size, err := c.Size()
	switch {
	case err != nil:
		err = refuse(r.dirPath, IOError, "%w", err)
	case size < r.Size() || size > max(r.Size(), r.meta.GrowsTo):
		err = refuse(r.dirPath, DataWrongSize, "its layers have %d bytes, but the metadata says %d bytes", size, r.Size())
	case r.opts.ReadOnly:
		r.layers, r.data = c, layered{Chain: c}
		r.show()
		return nil
	}
	_ = c.Close() // only read
	return err
}

// openLayers opens the chain for changes. It makes cache and disk of the unsealed files agree (chain.Open), so it takes
// the place of dropCache.
//
// The chain and the metadata must agree about what may be missing. With marks, the chain believes its records only if
// the metadata says that nothing is missing. If the chain then learns of a loss, the metadata says so before any record
// of the chain is changed.
func (r *Replica) openLayers() error {
	files := newLayerFiles()
	out := newLayersWriteback(files, r.opts.Pace, r.opts.Clock, r.checkWrittenOut, r.failWriteBack)
	c, err := chain.Open(layerDir{r.dir, files}, chain.Options{
		UID: r.meta.UID, Generation: r.meta.Layers, BootID: layersBoot(r.dir, r.opts.BootID), Clean: r.meta.Clean,
		FailedSync:     r.opts.Distrust || !r.meta.Clean && r.meta.BootID != r.opts.BootID,
		SameSuperblock: isMountKnown(r.dir), Reserve: r.opts.Reserve, Progress: r.progress,
		OnDistrust: func() error {
			if !r.cacheKept || len(r.intents.marked()) == 0 {
				return nil // it is known, or everything was flushed, so no record of the chain matters
			}
			return r.recordLoss(errDistrusted)
		},
	})
	if err != nil {
		return r.refuseLayers(err)
	}
	r.layers, r.out, r.errors = c, out, files
	r.data = layered{Chain: c, out: out, partial: &blockLocks{}}
	r.show()
	if err := files.earlierError(); err != nil {
		return r.recordLoss(err)
	}
	return nil
}

func (r *Replica) failWriteBack(err error) {
	r.fail(fmt.Errorf("write back the data of replica %s: %w", r.name, err))
}

// refuseLayers is the refusal for an error of chain.Open.
func (r *Replica) refuseLayers(err error) error {
	switch {
	case errors.Is(err, chain.ErrMissing):
		return refuse(r.dirPath, DataMissing, "%w", err)
	case errors.Is(err, chain.ErrNewVersion):
		return refuse(r.dirPath, UnknownVersion, "%w", err)
	case errors.Is(err, chain.ErrNotOurs), errors.Is(err, chain.ErrTorn), errors.Is(err, chain.ErrForeign):
		return refuse(r.dirPath, LayersTorn, "%w", err)
	}
	return refuseFile(r.dirPath, err, DataMissing, NotAReplica)
}

// shown is what callers outside of the lane see of the data's layout.
type shown struct {
	layers *chain.Chain
	out    *writeback
}

// show lets callers outside of the lane see layers and out, after these were set.
func (r *Replica) show() { r.shown.Store(&shown{r.layers, r.out}) }

// chainNow returns the chain of layers; nil in format 1. It does not wait.
func (r *Replica) chainNow() *chain.Chain {
	if now := r.shown.Load(); now != nil {
		return now.layers
	}
	return nil
}

// limit returns the limit of the data that is not on the disk; nil in an opening for reading only. It does not wait.
func (r *Replica) limit() *writeback {
	if now := r.shown.Load(); now != nil {
		return now.out
	}
	return nil
}
