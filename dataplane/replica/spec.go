package replica

import (
	"fmt"
	"path"
	"regexp"
	"strings"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
)

// Spec identifies a replica: Create creates it, and Open expects to find it.
type Spec struct {
	// UID of the Replica object; letters, digits and '-', at most 64.
	UID string
	// Volume and Name of the Replica object.
	Volume, Name string
	// SizeBytes is the volume's size; a positive multiple of BlockBytes.
	SizeBytes int64
}

const (
	// BlockBytes is the logical block size of every volume. It can never change, because file systems depend on it.
	BlockBytes = 512

	minRegionBytes = 4 << 20
	maxRegions     = 256 << 10
)

var (
	uidForm  = regexp.MustCompile(`^[A-Za-z0-9-]{1,64}$`)
	nameForm = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9._]{0,126}[A-Za-z0-9])?$`)
)

func (s Spec) validate() error {
	switch {
	case !uidForm.MatchString(s.UID):
		return fmt.Errorf("UID %q must be 1 to 64 letters, digits and '-'", s.UID)
	case !nameForm.MatchString(s.Volume):
		return fmt.Errorf("volume name %q must be 1 to 128 letters, digits, '-', '.' and '_', and start and end with a letter or digit", s.Volume)
	case !nameForm.MatchString(s.Name):
		return fmt.Errorf("replica name %q must be 1 to 128 letters, digits, '-', '.' and '_', and start and end with a letter or digit", s.Name)
	case s.SizeBytes <= 0 || s.SizeBytes%BlockBytes != 0:
		return fmt.Errorf("size %d must be a positive multiple of %d bytes", s.SizeBytes, BlockBytes)
	}
	return nil
}

// RegionBytes is the size of one region of the intent map for a volume of the given size.
func RegionBytes(sizeBytes int64) int64 { return membership.RegionBytes(sizeBytes) }

func regionCount(sizeBytes, regionBytes int64) int64 {
	n := sizeBytes / regionBytes
	if sizeBytes%regionBytes != 0 {
		n++
	}
	return n
}

// place splits the path of a replica's directory into the path of its parent and its name there.
func place(dir string) (parent, name string, err error) {
	clean := path.Clean(dir)
	parent, name = path.Split(clean)
	switch {
	case !strings.HasPrefix(dir, "/"), name == "":
		return "", "", refuse(dir, InvalidSpec, "the path of a replica's directory must be absolute and must not be the root directory")
	case strings.HasPrefix(name, "."), len(name) > 128:
		return "", "", refuse(dir, InvalidSpec, "the name of a replica's directory must not start with '.' and must have at most 128 bytes")
	}
	return path.Clean(parent), name, nil
}

// These names exist in a replica's directory, or are leftovers of an interrupted Create or Remove.
const (
	metaName     = "replica.meta"
	metaTempName = "replica.meta.tmp" // the spare; see replacesMeta
	intentName   = "intent.map"
	// intentTempName is the next intent map while the replica grows (grow.go), else the changes since a member was left
	// out (since.go). Both have one name, because a release that does not know since.go removes a directory only if it
	// knows all names in it.
	intentTempName = "intent.map.tmp"
	// changesName is the name of the record of since.go in the next release, because people delete files with names
	// that end in tmp. This release renames the file to the old name, so that both releases can run on a node one after
	// the other, in any order.
	changesName = "changes.map"
	dataName    = "data.img"
)

func creatingName(name, uid string) string { return "." + name + ".creating-" + uid }

func deletingName(name, uid string) string { return "." + name + ".deleting-" + uid }
