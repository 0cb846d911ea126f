package disk

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
)

// Reasons of a disk that is not ready, as they appear in its Ready condition.
const (
	// ReasonNoDiskInfo: the directory or its UUID file could not be read, or was not scanned or created yet.
	ReasonNoDiskInfo = "NoDiskInfo"
	// ReasonDiskFilesystemChanged: the path does not lead to the recorded disk, or leads to a file system that another
	// disk uses.
	ReasonDiskFilesystemChanged = "DiskFilesystemChanged"
	// ReasonReplicasDirectoryMissing: the disk exists, but not its directory for replicas, or something else is in its
	// place.
	ReasonReplicasDirectoryMissing = "ReplicasDirectoryMissing"
	// ReasonDiskOnVolume: the disk's file system is on the device of a volume that this node serves, and the node's
	// data plane cannot use such a disk.
	ReasonDiskOnVolume = "DiskOnVolume"
	// ReasonDiskReadOnly: nothing can be written to the disk's file system.
	ReasonDiskReadOnly = "DiskReadOnly"
	// ReasonDiskInMemory: the disk's file system is in memory, so a restart of the node loses all replicas on it. A new
	// disk is then not ready. A disk that was used before gets no further replicas.
	ReasonDiskInMemory = "DiskInMemory"
	// ReasonDiskOnOverlay: the disk lies on overlayfs, which does not report failed writes. A new disk is then not
	// ready. A disk that was used before remains in use, because its volumes may have no other place.
	ReasonDiskOnOverlay = "DiskOnOverlay"
	// ReasonDuplicateUUID: another disk of the node has the same disk UUID.
	ReasonDuplicateUUID = "DuplicateUUID"
	// ReasonDiskMoved: the disk is in use at another path of the node, under another name.
	ReasonDiskMoved = "DiskMoved"
)

// SpecDisk is a disk as the user requested it.
type SpecDisk struct {
	Path string // absolute, in the host's view
	// MayBeOnVolume says that the data plane can use a disk on a volume that is attached to the node.
	MayBeOnVolume bool
}

// Known is the information about a disk that an earlier pass recorded. The zero value is a new disk.
type Known struct {
	UUID  string // empty: never accepted
	Ready bool   // the last pass accepted it
}

// Verdict is the judgement of one disk.
type Verdict struct {
	// Accept says that the disk is ready. UUID is its disk UUID, which must be recorded.
	Accept bool
	// UUID is the accepted UUID. While the disk is not accepted, it is the recorded one: a recorded UUID is never
	// deleted.
	UUID string
	// CreateConfig says that the disk is new, alone on its file system, and lacks only a UUID file. The caller must
	// Create one, scan, and match again.
	CreateConfig bool
	Reason       string // empty when accepted
	Message      string // a sentence for people, also when accepted
}

// candidate is one disk while the rules are applied.
type candidate struct {
	name     string
	path     string
	known    Known
	record   Record
	rejected *Verdict

	mayBeOnVolume bool
}

func (c *candidate) isOld() bool { return c.known.UUID != "" }

// occupies reports whether the file system at the path belongs to the recorded disk, ready or not: its UUID file
// exists, even if torn. A disk without a file is most likely not mounted, and then the path leads to another file
// system.
func (c *candidate) occupies() bool {
	if !c.isOld() || c.record.Err != nil || errors.Is(c.record.ConfigErr, ErrConfigMissing) {
		return false
	}
	return c.record.ConfigErr != nil || c.fileUUID() == c.known.UUID
}

// isAway reports whether the path is known not to lead to the recorded disk. It leads nowhere, to a directory without a
// UUID file, or to another disk.
func (c *candidate) isAway() bool {
	if !c.isOld() {
		return false
	}
	if c.record.Err != nil {
		return errors.Is(c.record.Err, fs.ErrNotExist)
	}
	if c.record.ConfigErr != nil {
		return errors.Is(c.record.ConfigErr, ErrConfigMissing)
	}
	return c.fileUUID() != c.known.UUID
}

// fileUUID returns the UUID in the disk's file, or "".
func (c *candidate) fileUUID() string {
	if c.record.Config == nil {
		return ""
	}
	return c.record.Config.UUID
}

// Match judges all disks of a node together. spec, prev and records are keyed by disk name. A disk without an entry in
// prev is new. A disk without a matching record has not been scanned. The result contains one Verdict for each disk of
// spec and depends only on the arguments.
//
// There are three passes. Each looks only at the disks that the previous one left:
//
//  1. Alone: the directory and its UUID file are readable, and the file agrees with the recorded UUID. A recorded
//     UUID without a file is a missing mount. A disk with its file has a directory for replicas. It can be written
//     to. A new one is not in memory. No disk lies on a volume that this node serves: the data plane keeps such file
//     systems out of its process.
//  2. Per file system: the one disk that was recorded stays. All new disks are not ready, even while the recorded
//     disk itself is not ready. If all disks are new, none is ready. Several recorded disks, each with its own valid
//     file, may share a file system by now. Then the disk that was ready stays, or the first by name.
//  3. Per UUID: a new disk must not carry a UUID that another disk of spec has recorded, or shows on another file
//     system. Of several disks recorded with one UUID, the disk that was ready stays, or the first by name. If the
//     path of a recorded disk does not lead to its file, it does not count: the disk is at the place of its file, and
//     the message of the old entry says so.
func Match(node string, spec map[string]SpecDisk, prev map[string]Known, records map[string]Record) map[string]Verdict {
	all := candidates(spec, prev, records)
	reject := func(c *candidate, reason, cause string) {
		c.rejected = &Verdict{
			UUID:    c.known.UUID,
			Reason:  reason,
			Message: notReadyMessage(node, c.name, c.path, cause),
		}
	}
	for _, pass := range []func([]*candidate, rejectFunc){
		checkAlone, checkFilesystems, checkUUIDs,
	} {
		pass(all, reject)
	}
	reportMoved(all, reject)

	verdicts := make(map[string]Verdict, len(all))
	for _, c := range all {
		verdicts[c.name] = verdict(node, c)
	}
	return verdicts
}

type rejectFunc func(c *candidate, reason, cause string)

// candidates lists the disks of spec by name, so that messages and ties repeat.
func candidates(spec map[string]SpecDisk, prev map[string]Known, records map[string]Record) []*candidate {
	all := make([]*candidate, 0, len(spec))
	for name, s := range spec {
		known := prev[name]
		known.UUID = strings.ToLower(known.UUID)
		c := &candidate{name: name, path: s.Path, known: known, mayBeOnVolume: s.MayBeOnVolume}
		// A record of another path was scanned before the spec changed.
		if rec, ok := records[name]; ok && rec.Path == s.Path {
			c.record = rec
		} else {
			c.record = Record{Name: name, Path: s.Path, Err: errNotScanned}
		}
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b *candidate) int { return strings.Compare(a.name, b.name) })
	return all
}

var errNotScanned = errors.New("it has not been scanned yet")

func verdict(node string, c *candidate) Verdict {
	switch {
	case c.rejected != nil:
		return *c.rejected
	case c.fileUUID() == "": // pass 1 lets only new disks get here without
		return Verdict{
			CreateConfig: true,
			Reason:       ReasonNoDiskInfo,
			Message:      notReadyMessage(node, c.name, c.path, causeNoConfigYet),
		}
	default:
		return Verdict{
			Accept:  true,
			UUID:    c.fileUUID(),
			Message: readyMessage(node, c.name, c.path),
		}
	}
}

// checkAlone is pass 1.
func checkAlone(all []*candidate, reject rejectFunc) {
	for _, c := range all {
		missing := errors.Is(c.record.ConfigErr, ErrConfigMissing)
		switch {
		case c.record.Err != nil:
			reject(c, ReasonNoDiskInfo, c.record.Err.Error())
		case c.record.OnVolume != "" && !c.mayBeOnVolume:
			reject(c, ReasonDiskOnVolume, causeOnVolume(c))
		case missing && c.isOld():
			reject(c, ReasonDiskFilesystemChanged, causeMissing(c))
		case c.record.ConfigErr == nil && c.isOld() && c.fileUUID() != c.known.UUID:
			reject(c, ReasonDiskFilesystemChanged, causeMismatch(c))
		case c.record.ReadOnly:
			reject(c, ReasonDiskReadOnly, causeReadOnly)
		case missing && InMemory(c.record.FSType):
			reject(c, ReasonDiskInMemory, causeInMemory(c))
		case missing && OnOverlay(c.record.FSType):
			reject(c, ReasonDiskOnOverlay, causeOnOverlay(c))
		case missing:
			// A new disk: its file is created if the other passes find nothing.
		case c.record.ConfigErr != nil:
			reject(c, ReasonNoDiskInfo, causeBadConfig(c))
		case c.record.ReplicasErr != nil:
			reject(c, ReasonReplicasDirectoryMissing, causeReplicas(c))
		}
	}
}

// checkFilesystems is pass 2. It decides which disks to reject before it rejects any, so the order of disks has no
// influence.
func checkFilesystems(all []*candidate, reject rejectFunc) {
	left := remaining(all)
	present := filter(all, func(c *candidate) bool { return c.rejected == nil || c.occupies() })
	for _, c := range left {
		others := left
		if !c.isOld() {
			others = present
		}
		sharing := filter(others, func(other *candidate) bool {
			return other != c && sameFilesystem(c.record, other.record)
		})
		if len(sharing) == 0 {
			continue
		}
		if c.isOld() && c == preferred(append(filter(sharing, (*candidate).isOld), c)) {
			continue
		}
		reject(c, ReasonDiskFilesystemChanged, causeShared(c, sharing))
	}
}

// checkUUIDs is pass 3.
func checkUUIDs(all []*candidate, reject rejectFunc) {
	left := remaining(all)
	for _, c := range left {
		if c.fileUUID() == "" {
			continue
		}
		var duplicates []*candidate
		if c.isOld() {
			duplicates = filter(left, func(other *candidate) bool {
				return other != c && other.known.UUID == c.known.UUID
			})
			if c == preferred(append(duplicates, c)) {
				continue
			}
		} else {
			// Rejected disks count here: of two clones no rule can determine the original. A recorded disk that is away
			// does not count, because this is its present place. If this is an old copy, the number of the claim shows
			// that (DecideClaim).
			duplicates = filter(all, func(other *candidate) bool { return isDuplicate(c, other) })
		}
		if len(duplicates) > 0 {
			reject(c, ReasonDuplicateUUID, causeDuplicate(c, duplicates))
		}
	}
}

// isDuplicate reports whether the disk other has the UUID that the new disk c shows. Either other has recorded it and
// is not away, or it also shows it on another file system.
func isDuplicate(c, other *candidate) bool {
	if other == c {
		return false
	}
	if other.known.UUID == c.fileUUID() && !other.isAway() {
		return true
	}
	return other.fileUUID() == c.fileUUID() && !sameFilesystem(c.record, other.record)
}

// reportMoved adds the new place to the verdicts of entries with disks that are accepted elsewhere.
func reportMoved(all []*candidate, reject rejectFunc) {
	for _, c := range all {
		if c.rejected == nil || !c.isAway() {
			continue
		}
		for _, now := range remaining(all) {
			if now.fileUUID() == c.known.UUID {
				reject(c, ReasonDiskMoved, causeMoved(c, now))
			}
		}
	}
}

// preferred returns the disk that stays: a disk that was ready, else the first by name. The preference for the ready
// disk prevents disks from taking turns.
func preferred(old []*candidate) *candidate {
	return slices.MinFunc(old, func(a, b *candidate) int {
		if a.known.Ready != b.known.Ready {
			if a.known.Ready {
				return -1
			}
			return 1
		}
		return strings.Compare(a.name, b.name)
	})
}

func remaining(all []*candidate) []*candidate {
	return filter(all, func(c *candidate) bool { return c.rejected == nil })
}

func filter(in []*candidate, keep func(*candidate) bool) []*candidate {
	var out []*candidate
	for _, c := range in {
		if keep(c) {
			out = append(out, c)
		}
	}
	return out
}
