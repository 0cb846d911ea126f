package replica

import (
	"context"
	"errors"
	"fmt"

	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
)

// Among members of an epoch the engine prefers as a source one that has kept all that was written to it, synced or not. A replica
// tells that from two things that are durable, the boot id in its metadata and its marks:
//
//	opened                hasKept decides; nothing is written
//	an engine let in      the metadata gets this boot's id, or "" when something may be missing: from here on writes come that are
//	                      not durable, so the id of another boot would be of no use
//	no mark left          what was missing has been made good, or no member has it: this boot's id
//	rebuilt               the same, if the rebuild began in this opening
//	a write or sync failed
//	                      "" at once, if the disk takes it, and otherwise at the close; the host of the replica remembers it as well
//	                      (Options.Distrust)
//	the disk was lost     the host remembers it
//	an opening hears that writes were lost
//	                      "" before it continues. If the disk refuses that, the opening is refused, and the host remembers it.
//	                      If it only lacks the space, the next admission needs that too, and records it
//
// What a replica has is another question than what it may lack. After a failed sync the kernel shows bytes that the disk does not have,
// to every later opening of the same boot. So only a replica that was closed in order is opened with its cache: then every sync succeeded,
// and nothing was written since. Any other opening drops the data from the cache, and makes durable what stays cached (dropcache.go).
// From then on reads return what the disk has, whichever process was killed or failed
// before. That is also why the last clearing makes a single member trusted again, although it was compared with no other: what it reads
// cannot change later, and no other replica has what it may lack.

// hasKept tells whether nothing that was written before an opening can be missing now, synced or not.
//
//	closed in order                                    kept
//	no region marked                                   kept: marks are cleared after a flush
//	marked, and the caller knows of an error           not
//	marked, all since the last clearing in this boot   kept: the kernel has it
//	marked, other boots, or unknown                    not
func hasKept(m Meta, marked bool, opts Options) bool {
	switch {
	case m.Clean, !marked:
		return true
	case opts.Distrust, opts.BootID == "":
		return false
	}
	return m.BootID == opts.BootID
}

// bootLocked is what the metadata says while an engine is in: the boot in which everything was written that may not be durable,
// or "" when some of that may be missing.
func (r *Replica) bootLocked() string {
	if r.cacheKept {
		return r.opts.BootID
	}
	return ""
}

// trust records, unless it is so already or the replica has failed, that nothing which was written before is missing: from here on
// what is not durable is of this boot. The marks that were cleared may be back after a loss of power; then the boot is another. A disk
// without space is asked again when no mark is left the next time.
func (r *Replica) trust() error {
	r.mu.Lock()
	done := r.cacheKept || r.failure != nil
	r.mu.Unlock()
	if done {
		return nil
	}
	err := r.update(func(m *Meta) { m.BootID = r.opts.BootID })
	switch {
	case errors.Is(err, nbd.ENOSPC) && !errors.Is(err, errUncertain):
		return nil
	case err != nil:
		return fmt.Errorf("record that nothing is missing: %w", err)
	}
	r.keep()
	return nil
}

// keep notes what the metadata says by now. A failure that came in between is recorded when the replica is closed.
func (r *Replica) keep() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cacheKept = r.failure == nil
}

// forgetSoon has the lane do forgetBoot. It does not wait for the close, before which the process may be killed: the next opening would take
// the replica for one that has kept everything. The goroutine ends with the calls that have the lane before it.
func (r *Replica) forgetSoon() {
	go func() {
		_ = r.lane.run(context.Background(), call{what: "record that writes were lost", work: func() error {
			if !r.released {
				r.forgetBoot()
			}
			return nil
		}})
	}()
}

// forgetBoot records that writes were lost although the machine ran on, so that the replica is not preferred as a source. The
// disk may refuse that too; then the next opening does not know, unless Options.Distrust tells it. When only the metadata is uncertain,
// nothing was lost. A later failure may have lost writes all the same, so cacheKept decides and not the first failure. The caller is in
// the lane.
func (r *Replica) forgetBoot() {
	r.mu.Lock()
	needless := r.lost || r.cacheKept || r.meta.BootID == ""
	r.mu.Unlock()
	if needless {
		return
	}
	if err := r.update(func(m *Meta) { m.BootID = "" }); err != nil && r.opts.Log != nil {
		r.opts.Log.WithError(err).Warn("Could not record that the replica lost writes")
	}
}
