package layers

import "slices"

// Index tells where the search for a block of the volume starts, so that it does not ask all layers. It is derived from
// the maps, and it may be old: a replica may lose its newest version. So it contains only what stays right.
//
//	slot    a file. The highest sealed layer that has the block is not above the layer of that file. If the file has left
//	        the list, the layer of the next higher file takes its place. 0: no sealed layer has the block
//	Reach   a file number. The slots say nothing about a layer that may have files above it (see reach)
//
// Nothing that happens later makes this wrong:
//
//	a merge moves a block within its layer      the slot names the layer, not the file
//	a file leaves the list                      its layer has a file next to it. If that file is a lower one, the search
//	                                            starts one layer too high, and finds nothing there
//	layers are joined                           the slot names the joined layer
//	a layer is sealed, also after it was        it has a new border, and a new file above it. So its reach is above the
//	joined with the head                        number that Reach had before
//	a revert drops layers                       their slots lead to the head, so all sealed layers are asked. New files have
//	                                            higher numbers
//
// The unsealed layers are not in the index. They are asked first.
type Index struct {
	Slots []File
	Reach File
}

// SealedLayers is the number of layers below the lowest one whose files a flush must sync.
func (c Chain) SealedLayers() int {
	first := c.Head()
	for first > 0 && !c.Layers[first-1].Top.Flushed {
		first--
	}
	return first
}

// reach is the highest number that a file of a layer may have had: files of the layer above are newer.
func (c Chain) reach(layer int) File { return c.Layers[layer+1].Files[0] - 1 }

// Reach is the number that an index of all sealed layers has; 0 if no layer is sealed.
func (c Chain) Reach() File {
	if first := c.SealedLayers(); first > 0 {
		return c.reach(first - 1)
	}
	return 0
}

// slotLayer returns the highest sealed layer that may have a block with this slot; -1 if none has it.
func (c Chain) slotLayer(slot File) int {
	if slot == 0 {
		return -1
	}
	sealed := c.Layers[:c.SealedLayers()]
	i, _ := slices.BinarySearchFunc(sealed, slot, func(l Layer, f File) int { return int(l.Files[len(l.Files)-1] - f) })
	return min(i, len(sealed)-1)
}

// NewIndex is the index of n blocks that knows nothing yet.
func NewIndex(n int64) Index { return Index{Slots: make([]File, n)} }

// Update returns the index of all sealed layers. It asks only the layers that the index says nothing about, and the
// ones of files that have left the list. has counts blocks from the first one of the index.
func (x Index) Update(c Chain, has Has) Index {
	out := Index{Slots: slices.Clone(x.Slots), Reach: max(x.Reach, c.Reach())}
	first, listed := c.SealedLayers(), map[File]bool{0: true}
	for _, l := range c.Layers {
		for _, f := range l.Files {
			listed[f] = true
		}
	}
	for b := range int64(len(x.Slots)) {
		found := false
		for i := first - 1; i >= 0 && c.reach(i) > x.Reach && !found; i-- {
			out.Slots[b], found = inLayer(c.Layers[i], b, has, x.Slots[b])
		}
		if slot := x.Slots[b]; !found && !listed[slot] {
			out.Slots[b], _ = c.Find(c.slotLayer(slot), b, has)
		}
	}
	return out
}

// FindFrom returns the file from which a block of the volume is read. slot is the one of an index whose Reach is not
// below Chain.Reach. A reader of an older snapshot cannot use the index: it has another chain.
func (c Chain) FindFrom(slot func(block int64) File, block int64, has Has) (File, bool) {
	first := c.SealedLayers()
	for i := c.Head(); i >= first; i-- {
		if f, ok := inLayer(c.Layers[i], block, has, 0); ok {
			return f, true
		}
	}
	return c.Find(c.slotLayer(slot(block)), block, has)
}

// inLayer returns the file of a layer from which a block is read, or otherwise and false.
func inLayer(l Layer, block int64, has Has, otherwise File) (File, bool) {
	for j := len(l.Files) - 1; j >= 0; j-- {
		if has(l.Files[j], block) {
			return l.Files[j], true
		}
	}
	return otherwise, false
}
