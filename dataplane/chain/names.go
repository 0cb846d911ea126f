package chain

import (
	"regexp"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

// ListNames are the names of the list and of the room for the next list. They may also be in a directory of format 1: a
// change to format 2 was interrupted.
var ListNames = []string{listName, listTempName}

// derivedForm has the names of the files that belong to no single layer: kept maps and the index.
var derivedForm = regexp.MustCompile(`^([0-9]+-[0-9a-f]+\.kept|index)(\.tmp)?$`)

// IsPart reports whether a name has the form of a file of a chain, except the list.
func IsPart(name string) bool {
	_, _, ok := parseName(name)
	return ok || derivedForm.MatchString(name)
}

// IsData reports whether a name is the one of a layer's data.
func IsData(name string) bool {
	_, kind, ok := parseName(name)
	return ok && kind == ".img"
}

// Owns returns which names of a directory may belong to the chain of a replica. A file with a number that the list has
// never given out does not. listed is false if there is no list of this replica that can be read. Then every name of
// the right form counts. Owns writes nothing.
func Owns(dir fsys.Dir, uid string) (owns func(name string) bool, listed bool) {
	l, err := readList(dir, uid)
	if err != nil {
		return IsPart, false
	}
	return func(name string) bool {
		if n, _, ok := parseName(name); ok {
			return l.chain.Dispose(n) != layers.Refuse
		}
		return IsPart(name)
	}, true
}
