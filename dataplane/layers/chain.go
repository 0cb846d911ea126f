package layers

import (
	"errors"
	"fmt"
	"slices"
)

// File is the number in the names of one layer's files: <n>.img, <n>.map, <n>.recent. A replica never uses a number
// twice, and files are never renamed.
type File int64

// Border is a point as one replica shows it.
type Border struct {
	Point
	// Flushed says that the replica has made everything below the border durable, and then this statement (OpSealed).
	Flushed bool `json:"flushed,omitempty"`
}

func (b Border) isZero() bool { return b.Number == 0 }

// Layer is one interval of time of the volume.
type Layer struct {
	// From is the number on which the layer stands: the border below it, or the revert after which it was started. In a
	// layer that a rebuild made it is a later number (see Stand).
	From Number `json:"from"`
	// Top is the border above the layer; zero in the head.
	Top Border `json:"top,omitzero"`
	// Files has the lowest file first. The upper one wins. More than one file is a merge that is under way. From the
	// lowest layer to the head the numbers ascend, because a new file is always the highest one.
	Files []File `json:"files"`
}

// Chain is the content of the list file of one replica.
type Chain struct {
	Layers []Layer `json:"layers"` // the lowest first; the last one is the head
	// Reverted is the last revert that the replica has followed. It is evidence when the object was restored from a
	// backup that is older than the revert.
	Reverted Interval `json:"reverted,omitzero"`
	// Next is the number of the next new file.
	Next File `json:"next"`
}

var (
	// ErrNoBorder says that the chain does not show a border.
	ErrNoBorder = errors.New("the replica does not have the snapshot")
	// ErrBorderGiven says that a border which was given up is still in the chain. It must be joined first.
	ErrBorderGiven = errors.New("the replica has not finished an earlier snapshot")
	// ErrManyFiles says that the chain has as many files as the index can name.
	ErrManyFiles = errors.New("the replica has too many layers")
)

// MostFiles is how many files a chain may have with the snapshots of users. Only the hidden points of rebuilds may add
// further files, up to AllFiles: the index has one byte for each block.
const (
	MostFiles = 250
	AllFiles  = 255
)

// NewChain is the chain of a volume without snapshots: one file, which needs no map. The replica stores no list for it.
func NewChain() Chain { return Chain{Layers: []Layer{{Files: []File{1}}}, Next: 2} }

// Validate reports a list that no sequence of operations produces. An opening refuses such a list as torn.
func (c Chain) Validate() error {
	if len(c.Layers) == 0 {
		return errors.New("no layer")
	}
	if r := c.Reverted; r != (Interval{}) && (r.To < 0 || r.By <= r.To) {
		return fmt.Errorf("revert %d returns to %d", r.By, r.To)
	}
	last, below := File(0), Number(0)
	for i, l := range c.Layers {
		switch head := i == len(c.Layers)-1; {
		case len(l.Files) == 0:
			return fmt.Errorf("layer %d has no file", i)
		case head != l.Top.isZero():
			return fmt.Errorf("layer %d: only the head has no border above it", i)
		case l.From < below, !head && l.Top.Number <= l.From:
			return fmt.Errorf("layer %d: numbers are not in order", i)
		case i < len(c.Layers)-2 && !l.Top.Flushed:
			// Unsealed ends at a flushed border. Prepare refuses to put a border above one that is not flushed.
			return fmt.Errorf("layer %d: only the newest border may be not flushed", i)
		}
		if below = l.From; !l.Top.isZero() {
			below = l.Top.Number
		}
		for _, f := range l.Files {
			if f <= last || f >= c.Next {
				return fmt.Errorf("layer %d: file %d is listed twice, out of order or out of range", i, f)
			}
			last = f
		}
	}
	return nil
}

// Head is the index of the top layer.
func (c Chain) Head() int { return len(c.Layers) - 1 }

// Border returns the index of the layer below a border, or -1.
func (c Chain) Border(p Point) int {
	return slices.IndexFunc(c.Layers, func(l Layer) bool { return l.Top.Point == p && !l.Top.isZero() })
}

// FileCount is the number of files of all layers.
func (c Chain) FileCount() (n int) {
	for _, l := range c.Layers {
		n += len(l.Files)
	}
	return n
}

// Prepare puts a border and an empty head above the present head. The replica makes the new files durable, then the
// list. An empty layer on top changes no view. Until Switch the replica writes to the file that Active names with
// prepared set. It is safe to repeat. limit is MostFiles, or AllFiles for the point of a rebuild.
func (c Chain) Prepare(p Point, limit int) (Chain, error) {
	if i := c.Border(p); i >= 0 && i == c.Head()-1 {
		return c, nil
	}
	for _, l := range c.Layers {
		switch {
		case l.Top.isZero():
		case !l.Top.Flushed:
			return c, fmt.Errorf("border %d: %w", l.Top.Number, ErrBorderGiven)
		case l.Top.Number >= p.Number:
			return c, fmt.Errorf("border %d is not below point %d: %w", l.Top.Number, p.Number, ErrBusy)
		}
	}
	if c.FileCount() >= limit {
		return c, ErrManyFiles
	}
	c = c.clone()
	c.Layers[c.Head()].Top = Border{Point: p}
	return c.push(p.Number), nil
}

// push adds an empty head that stands on a number.
func (c Chain) push(from Number) Chain {
	c.Layers = append(c.Layers, Layer{From: from, Files: []File{c.Next}})
	c.Next++
	return c
}

// Active returns the file that takes changes. prepared is state in memory: a head was prepared, and the engine has not
// switched to it. A replica that is opened again is not prepared: the top file takes changes, whatever was switched.
func (c Chain) Active(prepared bool) File {
	l := c.Layers[c.Head()]
	if prepared && c.Head() > 0 {
		l = c.Layers[c.Head()-1]
	}
	return l.Files[len(l.Files)-1]
}

// Unsealed returns the files that a flush must sync, the lowest first: the files of the head, and the files of
// each layer below it that is not known to be flushed.
func (c Chain) Unsealed() (files []File) {
	first := c.Head()
	for first > 0 && !c.Layers[first-1].Top.Flushed {
		first--
	}
	for _, l := range c.Layers[first:] {
		files = append(files, l.Files...)
	}
	return files
}

// Seal records that everything below a border is durable (OpSealed). The replica must have flushed every unsealed file
// by a flush that started after the switch.
func (c Chain) Seal(p Point) (Chain, error) {
	i := c.Border(p)
	if i < 0 {
		return c, fmt.Errorf("border %d: %w", p.Number, ErrNoBorder)
	}
	c = c.clone()
	c.Layers[i].Top.Flushed = true
	return c, nil
}

// Join takes a border away: the layers on both sides of it become one layer, the upper files over the lower ones. It is
// the first commit of each merge. No piece may be moved across a border that the list still shows. The number on which
// the lower layer stands remains.
func (c Chain) Join(p Point) (Chain, error) {
	i := c.Border(p)
	if i < 0 {
		return c, fmt.Errorf("border %d: %w", p.Number, ErrNoBorder)
	}
	c = c.clone()
	low, up := c.Layers[i], c.Layers[i+1]
	c.Layers[i] = Layer{From: low.From, Top: up.Top, Files: slices.Concat(low.Files, up.Files)}
	c.Layers = slices.Delete(c.Layers, i+1, i+2)
	return c, nil
}

// PutLocalHead adds an empty file on top of the head without a border. A merge of a small head into a large layer uses
// it: then users no longer write to the old head, and it can be merged down. The engine takes no part. limit is
// AllFiles: the index cannot name more files. A merge that may not have a local head goes up.
func (c Chain) PutLocalHead(limit int) (Chain, error) {
	if c.FileCount() >= limit {
		return c, ErrManyFiles
	}
	c = c.clone()
	h := &c.Layers[c.Head()]
	h.Files = append(h.Files, c.Next)
	c.Next++
	return c, nil
}

// RemoveFile takes a file out of its layer when its content is elsewhere (see Merged). The replica unlinks it after the
// list is durable.
func (c Chain) RemoveFile(f File) (Chain, error) {
	i := c.layerOf(f)
	if i < 0 || len(c.Layers[i].Files) == 1 {
		return c, fmt.Errorf("file %d is the only file of its layer, or of none", f)
	}
	c = c.clone()
	l := &c.Layers[i]
	l.Files = slices.DeleteFunc(l.Files, func(g File) bool { return g == f })
	return c, nil
}

// dropFrom removes all layers from index i on, and puts an empty head in their place.
func (c Chain) dropFrom(i int, from Number) Chain {
	c = c.clone()
	c.Layers = c.Layers[:i]
	return c.push(from)
}

func (c Chain) layerOf(f File) int {
	return slices.IndexFunc(c.Layers, func(l Layer) bool { return slices.Contains(l.Files, f) })
}

// below returns the number of the border below layer i; 0 below the lowest one.
func (c Chain) below(i int) Number {
	if i == 0 {
		return 0
	}
	return c.Layers[i-1].Top.Number
}

func (c Chain) clone() Chain {
	c.Layers = slices.Clone(c.Layers)
	for i := range c.Layers {
		c.Layers[i].Files = slices.Clone(c.Layers[i].Files)
	}
	return c
}

// Has reports whether a file has a block: its bit is set. The lowest file of a chain has no map and has every block.
type Has func(f File, block int64) bool

// Find returns the file from which a block is read in the view below layer index+1, so with index Head it is the
// volume itself. It returns false if no layer has the block: then it reads as zeroes. A hole in a present block reads
// as zeroes as well.
func (c Chain) Find(index int, block int64, has Has) (File, bool) {
	for i := index; i >= 0; i-- {
		files := c.Layers[i].Files
		for j := len(files) - 1; j >= 0; j-- {
			if has(files[j], block) {
				return files[j], true
			}
		}
	}
	return 0, false
}

// FindAt returns the file from which a block is read in the view at a point.
func (c Chain) FindAt(p Point, block int64, has Has) (File, bool, error) {
	i := c.Border(p)
	if i < 0 {
		return 0, false, fmt.Errorf("border %d: %w", p.Number, ErrNoBorder)
	}
	f, ok := c.Find(i, block, has)
	return f, ok, nil
}
