package replica

import (
	"context"
	"errors"
	"fmt"

	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

// As the source, the engine prefers a member of an epoch that has kept everything that was written to it, synced or
// not. A replica derives this from two durable facts, the boot id in its metadata and its marks:
//
//	opened                hasKept decides; nothing is written
//	an engine admitted    the metadata gets this boot's id, or "" if something may be missing: from here on there are
//	                      writes that are not durable, so the id of another boot would be useless
//	no mark left          missing data was written again, or no member has it: this boot's id
//	rebuilt               the same, if the rebuild started in this opening
//	a write or sync failed
//	                      "" at once, if the disk stores it, and otherwise at the close; the host of the replica also
//	                      remembers it (Options.Distrust)
//	the disk was lost     the host remembers it
//	an opening learns that writes were lost
//	                      "" before it continues. If the disk refuses that, the opening is refused, and the host
//	                      remembers it. If it only lacks the space, the next admission needs that too, and records it
//
// The content of a replica is a separate question from the data that it may lack. After a failed sync the kernel shows
// bytes that the disk does not have, to every later opening of the same boot. So only a replica that was closed in
// order is opened with its cache: then every sync succeeded, and nothing was written since. Any other opening drops the
// data from the cache, and makes the data durable that stays cached (dropcache.go). From then on reads return the
// content of the disk, whichever process was killed or failed before. For this reason the last clearing makes a single
// member trusted again, although it was not compared with any other member. The content that it reads cannot change
// later, and no other replica has the writes that it may lack.

// hasKept reports whether no write from before an opening can be missing now, synced or not.
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

// bootLocked is the boot id in the metadata while an engine is in. It identifies the boot during which everything was
// written that may not be durable. It is "" if some of that may be missing.
func (r *Replica) bootLocked() string {
	if r.cacheKept {
		return r.opts.BootID
	}
	return ""
}

// trust records that no earlier write is missing: from here on, all data that is not durable is of this boot. It does
// nothing if this is already recorded or the replica has failed. The cleared marks may return after a loss of power;
// then the boot is another one. If the disk lacks the space, the next call repeats this, when no mark is left again.
func (r *Replica) trust() error {
	r.mu.Lock()
	done := r.cacheKept || r.failure != nil
	r.mu.Unlock()
	if done {
		return nil
	}
	err := r.update(func(m *Meta) { m.BootID = r.opts.BootID })
	switch {
	case errors.Is(err, nbd.ENOSPC) && !errors.Is(err, fsys.ErrUncertain):
		return nil
	case err != nil:
		return fmt.Errorf("record that no write is missing: %w", err)
	}
	r.keep()
	return nil
}

// keep updates cacheKept to what the metadata now says. A failure that came in between is recorded when the replica is
// closed.
func (r *Replica) keep() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cacheKept = r.failure == nil
}

// forgetBootInBackground runs forgetBoot in the lane. It does not wait for the close, because the process may be killed
// before the close. Then the next opening would assume that the replica has kept everything. The goroutine ends after
// the calls that are in the lane before it.
func (r *Replica) forgetBootInBackground() {
	go func() {
		_ = r.lane.run(context.Background(), call{what: "record that writes were lost", work: func() error {
			if !r.released {
				r.forgetBoot()
			}
			return nil
		}})
	}()
}

// forgetBoot records that writes were lost although the machine kept running, so that the replica is not preferred as a
// source. The disk may refuse that too; then the next opening knows of it only through Options.Distrust. If only the
// metadata is uncertain, nothing was lost. But a later failure may have lost writes, so cacheKept decides and not the
// first failure. The caller is in the lane.
func (r *Replica) forgetBoot() {
	r.mu.Lock()
	needless := r.lost || r.cacheKept || r.meta.BootID == ""
	r.mu.Unlock()
	if needless {
		return
	}
	if err := r.update(func(m *Meta) { m.BootID = "" }); err != nil && r.opts.Log != nil {
		r.opts.Log.WithError(err).Warn("Cannot record that the replica lost writes")
	}
}
