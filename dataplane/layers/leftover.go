package layers

import "slices"

// Disposal is what an opening does with a layer file.
type Disposal int

const (
	Keep Disposal = iota
	// Remove: the list does not name the file, and gave its number out. It is a leftover of a merge, a revert, an
	// attempt that ended before the list, or a file that was taken out of the list.
	Remove
	// Refuse: the number was never given out. The directory contains a foreign file, so the opening changes nothing.
	Refuse
)

// Dispose decides about a file that an opening finds. Prepare and push create the file of number Next before the list
// that names it, so that number may be a leftover. The opening for reading only removes nothing.
func (c Chain) Dispose(f File) Disposal {
	switch {
	case c.layerOf(f) >= 0:
		return Keep
	case f > 0 && f <= c.Next:
		return Remove
	}
	return Refuse
}

// Missing returns the files that the list names and the directory lacks. Then the replica is refused: no step removes a
// file before the list without it is durable.
func (c Chain) Missing(found []File) (out []File) {
	for _, l := range c.Layers {
		for _, f := range l.Files {
			if !slices.Contains(found, f) {
				out = append(out, f)
			}
		}
	}
	return out
}
