package layers

import (
	"errors"
	"fmt"
)

// ErrIndexStale says that the index names a file that no layer has. The replica must create it from the maps again.
var ErrIndexStale = errors.New("the index is from before a revert")

// Index names, for each block, a file of the newest sealed layer that has the block; 0 if none has it. It is derived
// from the maps. A page of it is never trusted without its checksum and its generation, which counts the seals and the
// reverts of the chain. It must not count merges, because a merge rewrites nothing in the index.
//
// A slot stands for the layer of its file. While a merge is under way the block may have moved to another file of the
// same layer, so the maps of that layer's files decide. A file that leaves the list leaves an alias: another file of
// its layer.
type Index struct {
	Slots   []File
	Aliases map[File]File
}

// NewIndex makes the index of the first n blocks from the maps.
func NewIndex(c Chain, n int64, has Has) Index {
	x := Index{Slots: make([]File, n), Aliases: map[File]File{}}
	for b := range n {
		for i := c.Head() - 1; i >= 0 && x.Slots[b] == 0; i-- {
			if f, ok := inLayer(c.Layers[i], b, has); ok {
				x.Slots[b] = f
			}
		}
	}
	return x
}

// Removed returns the index after a file left the list. heir is a file of the layer
// that it was in.
func (x Index) Removed(f, heir File) Index {
	aliases := map[File]File{f: heir}
	for from, to := range x.Aliases {
		aliases[from] = to
	}
	return Index{Slots: x.Slots, Aliases: aliases}
}

// Find returns the file from which a block of the volume is read. The head's own files come first: they are not in the
// index. A reader of an older snapshot cannot use the index; it searches the layers below its point one by one.
func (x Index) Find(c Chain, block int64, has Has) (f File, found bool, err error) {
	if f, ok := inLayer(c.Layers[c.Head()], block, has); ok {
		return f, true, nil
	}
	slot := x.Slots[block]
	if slot == 0 {
		return 0, false, nil
	}
	for x.Aliases[slot] != 0 {
		slot = x.Aliases[slot]
	}
	i := c.layerOf(slot)
	if i < 0 {
		return 0, false, fmt.Errorf("file %d: %w", slot, ErrIndexStale)
	}
	f, found = inLayer(c.Layers[i], block, has)
	return f, found, nil
}

func inLayer(l Layer, block int64, has Has) (File, bool) {
	for j := len(l.Files) - 1; j >= 0; j-- {
		if has(l.Files[j], block) {
			return l.Files[j], true
		}
	}
	return 0, false
}
