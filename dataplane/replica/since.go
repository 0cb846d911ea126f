package replica

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"sync"
	"syscall"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

// A replica that comes back needs only the changes that were made while it was away. So a member records which marks it
// clears, from the epoch on that leaves another replica out. And a replica that was left out records which epoch it was
// a member of. Then these regions may differ between the two:
//
//	marked by the replica that was away    changes that it had and that were not made equal
//	marked by the member                   changes that it has, and that are not cleared yet
//	recorded by the member                 changes with marks that were cleared since
//
// The record is in a file next to the intent map (intentTempName), as long as it is useful:
//
//	0      4096  head: magic "LHSINCEM", version 1, length of the payload, payload (sinceHead as JSON), zeroes,
//	             CRC32C of all before
//	4096   n     an intent map (intentmap.go); a bit set: the mark of that region was cleared
//
// The record is believed only while its head names the generation, session and epoch of the metadata. A release that
// does not know the file clears marks without a record, but only after it has changed one of the three. So a head is
// written after the metadata. A head that may be wrong is unlinked, durably, before anything else happens. The loss of
// the file costs a full copy, and nothing else.

// sinceHead is the head of the file. It identifies members and replicas that are away by name.
type sinceHead struct {
	Generation int64            `json:"generation"`
	Session    string           `json:"session"`
	Epoch      membership.Epoch `json:"epoch"`
	sinceRecord
}

// sinceRecord is the knowledge of a replica about the time since an epoch. The zero value means that it knows nothing.
type sinceRecord struct {
	// Base is set while this replica is not a member. It is the last epoch of which the replica was a member, or the
	// epoch since which it lacked all data (resume.go).
	Base membership.Epoch `json:"base,omitzero"`
	// Away has the replicas that were members together with this replica, each with the last epoch that listed it. It
	// also has a replica that is the target of a full copy, with the epoch in which that copy started. All bits that
	// were set since the first of these epochs count for all of these replicas.
	Away map[string]membership.Epoch `json:"away,omitempty"`
	// Full is how many members the volume had before the first of these replicas was left out; 0 from a release that
	// did not record it.
	Full int `json:"full,omitempty"`
}

const (
	sinceMagic     = "LHSINCEM"
	sinceVersion   = 1
	sinceHeadBytes = 4096
	maxAway        = 8
)

func (w sinceRecord) isEmpty() bool { return w.Base.IsZero() && len(w.Away) == 0 }

// next returns the knowledge of a replica after it has stored an epoch. prior is the previous epoch. rebuilding means
// that its data was worthless before.
//
//	no member of next, member of prior          prior is the base
//	no member of next, nor of prior             the base stays
//	member of next, not of prior                nothing: it does not know which replicas were left out earlier
//	member of both                              the members that next leaves out are away since prior
//
// A replica is removed from the record when it is a member again. All are removed when the volume has as many members
// as before the first was left out. A replica's own epoch does not show how many members that is. The replica may have
// been left out after another replica that has not come back yet.
func (w sinceRecord) next(self string, prior, next membership.Epoch, rebuilding bool) sinceRecord {
	switch {
	case !next.Has(self) && prior.Has(self) && !rebuilding:
		return sinceRecord{Base: prior}
	case !next.Has(self):
		return sinceRecord{Base: w.Base}
	case !prior.Has(self):
		return sinceRecord{}
	}
	away, full := maps.Clone(w.Away), w.Full
	for _, last := range away {
		full = max(full, len(last.Members))
	}
	for _, name := range prior.Members {
		if !next.Has(name) && len(away) < maxAway {
			if away == nil {
				away = map[string]membership.Epoch{}
			}
			away[name] = prior
			full = max(full, len(prior.Members))
		}
	}
	maps.DeleteFunc(away, func(name string, _ membership.Epoch) bool {
		return next.Has(name) || len(next.Members) >= full
	})
	if len(away) == 0 {
		return sinceRecord{}
	}
	return sinceRecord{Away: away, Full: full}
}

// since is the file, if there is one. All methods except base are called in the replica's lane, or before anything else
// uses the replica.
type since struct {
	dir   fsys.Dir
	file  fsys.File // nil: there is no file, or none that may be believed
	image intentImage

	mu   sync.Mutex
	head sinceHead // guarded by mu; changed only in the lane
}

// openSince opens the file, if it matches the metadata, and makes its content durable. If the content cannot be made
// durable, openSince removes the file. A returned error means that this removal, or the renaming of a record of a later
// release, failed.
func openSince(dir fsys.Dir, m Meta) (*since, error) {
	s := &since{dir: dir}
	if err := adoptChanges(dir, m); err != nil {
		return s, err
	}
	regions := regionCount(m.SizeBytes, m.RegionBytes)
	b, err := readFile(dir, intentTempName, sinceHeadBytes+intentFileBytes(regions))
	if errors.Is(err, syscall.ENOENT) || errors.Is(err, fsys.ErrNotRegular) {
		return s, nil
	}
	if err == nil {
		s.head, s.image, err = decodeSince(b, m)
		if err != nil || !s.head.matches(m) {
			s.head = sinceHead{}
			// From before something else happened, or the next intent map of a replica that grows.
			return s, nil
		}
		s.file, err = dir.OpenFile(intentTempName, fsys.ReadWrite)
	}
	if err == nil {
		err = rewrite(s.file, b)
	}
	if err != nil {
		return s, s.drop()
	}
	return s, nil
}

// adoptChanges renames the record of a later release to the name that this release uses, if it goes with the metadata.
// A file may already have that name: an intent map of a replica that did not grow after all, or a record that the later
// release has superseded. A record that does not go with the metadata is removed. A returned error means that a record
// may be believed later although it is not updated.
func adoptChanges(dir fsys.Dir, m Meta) error {
	b, err := readFile(dir, changesName, sinceHeadBytes+intentFileBytes(regionCount(m.SizeBytes, m.RegionBytes)))
	if errors.Is(err, syscall.ENOENT) || errors.Is(err, fsys.ErrNotRegular) {
		return nil
	}
	var head sinceHead
	if err == nil {
		head, _, err = decodeSince(b, m)
	}
	var remove []string
	switch {
	case err == nil && !head.matches(m):
		remove = []string{changesName}
	case err != nil || dir.Rename(changesName, intentTempName) != nil:
		remove = []string{changesName, intentTempName} // the latter may go with the metadata, too, and is older
	}
	for _, name := range remove {
		if err := dir.Unlink(name); err != nil && !errors.Is(err, syscall.ENOENT) {
			return fmt.Errorf("remove %s: %w", name, err)
		}
	}
	if err := dir.Sync(); err != nil {
		return fmt.Errorf("sync after %s was renamed or removed: %w", changesName, err)
	}
	return nil
}

func (h sinceHead) matches(m Meta) bool {
	return h.Generation == m.Generation && h.Session == m.Session && h.Epoch.Equal(m.Epoch)
}

// close closes the file.
func (s *since) close() {
	if s.file != nil {
		_ = s.file.Close() // the important data was synced
		s.file = nil
	}
}

// base is the last epoch of which the replica was a member, according to the file.
func (s *since) base() membership.Epoch {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.head.Base
}

// follow updates the file after the metadata was replaced. A returned error means that the file could be believed
// later, although it is wrong.
func (s *since) follow(old, m Meta) error {
	if s == nil || old.Generation == m.Generation && old.Session == m.Session && old.Epoch.Equal(m.Epoch) {
		return nil
	}
	record := s.head.sinceRecord
	if !old.Epoch.Equal(m.Epoch) {
		record = record.next(m.Name, old.Epoch, m.Epoch, old.Rebuilding)
	}
	if record.isEmpty() {
		if s.file == nil {
			return nil
		}
		return s.drop()
	}
	if err := s.put(record, m); err != nil {
		return s.drop()
	}
	return nil
}

// put writes the knowledge of a replica with this metadata to the file. After an error the file may have any content,
// and must be dropped.
func (s *since) put(record sinceRecord, m Meta) error {
	h := sinceHead{Generation: m.Generation, Session: m.Session, Epoch: m.Epoch, sinceRecord: record}
	head, err := h.encode()
	switch {
	case err != nil:
	case s.file != nil:
		if err = s.file.WriteAt(head, 0); err == nil {
			err = s.file.Datasync()
		}
	default:
		err = s.create(head, m)
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.head = h
	s.mu.Unlock()
	return nil
}

// create creates a new file, with all its blocks, so that no bit needs new space later.
func (s *since) create(head []byte, m Meta) error {
	if err := s.drop(); err != nil {
		return err
	}
	image := newIntentImage(m.UID, m.RegionBytes, regionCount(m.SizeBytes, m.RegionBytes))
	err := fsys.WriteNew(s.dir, intentTempName, slices.Concat(head, image.b))
	if err == nil {
		err = s.dir.Sync()
	}
	if err == nil {
		s.file, err = s.dir.OpenFile(intentTempName, fsys.ReadWrite)
	}
	s.image = image
	return err
}

// drop removes the whole record, durably.
func (s *since) drop() error {
	s.close()
	s.mu.Lock()
	s.head = sinceHead{}
	s.mu.Unlock()
	err := s.dir.Unlink(intentTempName)
	if errors.Is(err, syscall.ENOENT) {
		return nil
	}
	if err == nil {
		err = s.dir.Sync()
	}
	if err != nil {
		return fmt.Errorf("remove the record of changed regions: %w", err)
	}
	return nil
}

// add durably records that the marks of regions are about to be cleared. If that fails, add removes the record. A
// returned error means that the file could be believed later, although it is wrong.
func (s *since) add(regions []int64) error {
	if s.file == nil || len(s.head.Away) == 0 {
		return nil
	}
	changed := map[int64]struct{}{}
	for _, r := range regions {
		if r >= s.image.regions {
			return s.drop()
		}
		if !s.image.has(r) {
			changed[s.image.set(r, true)] = struct{}{}
		}
	}
	if len(changed) == 0 {
		return nil
	}
	var err error
	for n := range changed {
		at := n * intentSectorBytes
		err = errors.Join(err, s.file.WriteAt(s.image.b[at:at+intentSectorBytes], sinceHeadBytes+at))
	}
	if err == nil {
		err = s.file.Datasync()
	}
	if err != nil {
		return s.drop()
	}
	return nil
}

// changedSince answers membership.OpChanged. The caller is in the lane, so no mark is cleared during this time.
func (r *Replica) changedSince(a membership.Away) ([]byte, error) {
	if last, known := r.since.head.Away[a.Replica]; !known || !last.Equal(a.Epoch) {
		return nil, invalid("it is unknown which regions changed since replica %s was in epoch %s", a.Replica, a.Epoch)
	}
	indexes := append(r.since.image.marked(), r.intents.marked()...)
	slices.Sort(indexes)
	return marshal(membership.Regions{Indexes: slices.Compact(indexes)})
}

// baseLocked is the Base of State.
func (r *Replica) baseLocked() membership.Epoch {
	if r.unreadable {
		return membership.Epoch{} // it must be written again, and has no mark
	}
	if r.meta.Epoch.Has(r.name) && !r.meta.Rebuilding {
		return r.meta.Epoch
	}
	return r.since.base()
}

func (h sinceHead) encode() ([]byte, error) {
	payload, err := json.Marshal(h)
	if err == nil && len(payload) > sinceHeadBytes-metaHeaderBytes-4 {
		err = fmt.Errorf("its %d bytes exceed the maximum", len(payload))
	}
	if err != nil {
		return nil, fmt.Errorf("encode the record of changed regions: %w", err)
	}
	b := make([]byte, sinceHeadBytes)
	copy(b, sinceMagic)
	binary.LittleEndian.PutUint32(b[8:], sinceVersion)
	binary.LittleEndian.PutUint32(b[12:], uint32(len(payload)))
	copy(b[metaHeaderBytes:], payload)
	end := sinceHeadBytes - 4
	binary.LittleEndian.PutUint32(b[end:], crc32.Checksum(b[:end], castagnoli))
	return b, nil
}

// decodeSince reads the content of the file. Errors wrap errNotOurs, errTorn or errNewVersion.
func decodeSince(b []byte, m Meta) (h sinceHead, image intentImage, err error) {
	end := sinceHeadBytes - 4
	switch {
	case len(b) < sinceHeadBytes || string(b[:len(sinceMagic)]) != sinceMagic:
		return h, image, errNotOurs
	case binary.LittleEndian.Uint32(b[8:]) != sinceVersion:
		return h, image, errNewVersion
	case crc32.Checksum(b[:end], castagnoli) != binary.LittleEndian.Uint32(b[end:]):
		return h, image, fmt.Errorf("%w: wrong checksum", errTorn)
	}
	n := binary.LittleEndian.Uint32(b[12:])
	if n > uint32(end-metaHeaderBytes) {
		return h, image, fmt.Errorf("%w: it has a payload of %d bytes", errTorn, n)
	}
	if err := json.Unmarshal(b[metaHeaderBytes:metaHeaderBytes+n], &h); err != nil {
		return sinceHead{}, image, fmt.Errorf("%w: %w", errTorn, err)
	}
	image, err = decodeIntentImage(b[sinceHeadBytes:], m.UID, m.RegionBytes, regionCount(m.SizeBytes, m.RegionBytes))
	return h, image, err
}
