package chain

import (
	"errors"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

// Active returns the name and the identity of the file that takes changes.
func (c *Chain) Active() (name string, id fsys.ID, err error) {
	c.reads.RLock()
	defer c.reads.RUnlock()
	if err := c.Err(); errors.Is(err, ErrClosed) {
		return "", fsys.ID{}, err
	}
	f := c.state.Load().active()
	data, err := f.reader()
	if err != nil {
		return "", fsys.ID{}, err
	}
	id, err = data.ID()
	return dataName(f.n), id, err
}

// DataNames are the names of the data of all layers, the lowest first.
func (c *Chain) DataNames() (names []string) {
	for _, n := range fileNumbers(c.chain()) {
		names = append(names, dataName(n))
	}
	return names
}

// AllocatedByLayer returns the layers, and the space that the data of each layer takes, the lowest first.
func (c *Chain) AllocatedByLayer() (l layers.Chain, sums []int64, err error) {
	c.reads.RLock()
	defer c.reads.RUnlock()
	if err := c.Err(); errors.Is(err, ErrClosed) {
		return layers.Chain{}, nil, err
	}
	s := c.state.Load()
	sums = make([]int64, len(s.list.chain.Layers))
	for i, layer := range s.list.chain.Layers {
		for _, n := range layer.Files {
			data, err := s.files[n].reader()
			if err != nil {
				return layers.Chain{}, nil, err
			}
			allocated, err := data.AllocatedBytes()
			if err != nil {
				return layers.Chain{}, nil, err
			}
			sums[i] += allocated
		}
	}
	return s.list.chain, sums, nil
}
