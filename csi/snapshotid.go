package csi

import (
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
)

// A snapshot's id is snap://<volume>/<snapshot>, as in Longhorn. Ids of Longhorn with another scheme are of things that
// this release does not have: bak and bs are backups, bi is a backing image.
const (
	schemeSnapshot = "snap"
	schemeVolume   = "vol"

	schemeBackup       = "bak"
	schemeOldBackup    = "bs"
	schemeBackingImage = "bi"

	schemeEnd = "://"
)

// snapshotID is a parsed id.
type snapshotID struct{ volume, name string }

func (id snapshotID) String() string { return schemeSnapshot + schemeEnd + id.volume + "/" + id.name }

// errForeignID: the text names no snapshot of this driver, and has none of the forms of Longhorn's ids. So no snapshot
// with this id exists.
type errForeignID struct{ id string }

func (e errForeignID) Error() string { return fmt.Sprintf("snapshot %q does not exist", e.id) }

// parseSnapshotID parses an id. The error is an errForeignID, or says why this release cannot have the snapshot.
func parseSnapshotID(text string) (snapshotID, error) {
	scheme, rest, isURL := strings.Cut(text, schemeEnd)
	switch {
	case !isURL:
		return snapshotID{}, errForeignID{text}
	case scheme == schemeBackup, scheme == schemeOldBackup:
		return snapshotID{}, fmt.Errorf("snapshot id %q names a backup, and this release has no backups", text)
	case scheme == schemeBackingImage:
		return snapshotID{}, fmt.Errorf("snapshot id %q names a backing image, and this release has no backing images", text)
	case scheme != schemeSnapshot:
		return snapshotID{}, fmt.Errorf("snapshot id %q must have the form snap://<volume>/<snapshot>", text)
	}
	volume, name, _ := strings.Cut(rest, "/")
	if !isVolumeID(volume) || !validSnapshotName.MatchString(name) || len(name) > maxObjectName {
		return snapshotID{}, fmt.Errorf("snapshot id %q must have the form snap://<volume>/<snapshot>", text)
	}
	return snapshotID{volume, name}, nil
}

const (
	// maxObjectName is how long the name of a Snapshot object can be.
	maxObjectName = 253
	// maxSnapshotName is how long the names are that the driver gives. The snapshotter's names have 45 bytes.
	maxSnapshotName = 63
)

// validSnapshotName matches the names of Snapshot objects. A user may have chosen one with dots.
var validSnapshotName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`)

// snapshotName derives the name of the Snapshot object from a requested name. The same text always gives the same name.
// A name that no object can have gets a checksum of the text, so that two texts give two names.
func snapshotName(text string) string {
	if validSnapshotName.MatchString(text) && len(text) <= maxSnapshotName {
		return text
	}
	sum := sha512.Sum512([]byte(text))
	hash := hex.EncodeToString(sum[:])[:16]
	plain := strings.Trim(notInNames.ReplaceAllString(strings.ToLower(text), "-"), "-")
	if plain == "" {
		return schemeSnapshot + "-" + hash
	}
	plain = strings.TrimRight(plain[:min(len(plain), maxSnapshotName-len(hash)-1)], "-")
	return plain + "-" + hash
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)
