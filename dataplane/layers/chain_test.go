package layers

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func sealed(from, top Number, files ...File) Layer {
	return Layer{From: from, Top: Border{Point: pt(top), Flushed: true}, Files: files}
}

func open(from, top Number, files ...File) Layer {
	return Layer{From: from, Top: Border{Point: pt(top)}, Files: files}
}

func head(from Number, files ...File) Layer { return Layer{From: from, Files: files} }

func chain(next File, layers ...Layer) Chain { return Chain{Layers: layers, Next: next} }

func TestChain(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func() (Chain, error)
		want Chain
		err  error
	}{
		{
			"the first head is prepared above the flat file", func() (Chain, error) { return NewChain().Prepare(pt(1), MostFiles) },
			chain(3, open(0, 1, 1), head(1, 2)), nil,
		},
		{
			"prepared again → the same", func() (Chain, error) { return chain(3, open(0, 1, 1), head(1, 2)).Prepare(pt(1), MostFiles) },
			chain(3, open(0, 1, 1), head(1, 2)), nil,
		},
		{
			"an earlier border is not joined yet → refused", func() (Chain, error) { return chain(3, open(0, 1, 1), head(1, 2)).Prepare(pt(2), MostFiles) },
			chain(3, open(0, 1, 1), head(1, 2)), ErrBorderGiven,
		},
		{
			"a later border is there → refused", func() (Chain, error) { return chain(3, sealed(0, 5, 1), head(5, 2)).Prepare(pt(4), MostFiles) },
			chain(3, sealed(0, 5, 1), head(5, 2)), ErrBusy,
		},
		{
			"the limit counts files → refused", func() (Chain, error) { return chain(4, sealed(0, 1, 1, 2), head(1, 3)).Prepare(pt(2), 3) },
			chain(4, sealed(0, 1, 1, 2), head(1, 3)), ErrManyFiles,
		},
		{"sealed", func() (Chain, error) { return chain(3, open(0, 1, 1), head(1, 2)).Seal(pt(1)) }, chain(3, sealed(0, 1, 1), head(1, 2)), nil},
		{"sealed without the border → refused", func() (Chain, error) { return NewChain().Seal(pt(1)) }, NewChain(), ErrNoBorder},
		{"joined in the middle: the upper file wins, the lower number remains", func() (Chain, error) {
			return chain(4, sealed(0, 1, 1), sealed(1, 2, 2), head(2, 3)).Join(pt(1))
		}, chain(4, sealed(0, 2, 1, 2), head(2, 3)), nil},
		{"the newest border is joined with the head", func() (Chain, error) {
			return chain(4, sealed(0, 1, 1), sealed(1, 2, 2), head(2, 3)).Join(pt(2))
		}, chain(4, sealed(0, 1, 1), head(1, 2, 3)), nil},
		{"a border during a merge → the layer has three files", func() (Chain, error) {
			return chain(5, sealed(0, 2, 1, 2), sealed(2, 3, 3), head(3, 4)).Join(pt(2))
		}, chain(5, sealed(0, 3, 1, 2, 3), head(3, 4)), nil},
		{"the head of a revert keeps its number when the border below it goes", func() (Chain, error) {
			return chain(4, sealed(0, 1, 1), sealed(3, 4, 2), head(4, 3)).Join(pt(4))
		}, chain(4, sealed(0, 1, 1), head(3, 2, 3)), nil},
		{
			"a local head needs no border", func() (Chain, error) { return chain(3, sealed(0, 1, 1), head(1, 2)).PutLocalHead(AllFiles) },
			chain(4, sealed(0, 1, 1), head(1, 2, 3)), nil,
		},
		{
			"a merged file leaves the list", func() (Chain, error) { return chain(4, sealed(0, 1, 1, 2), head(1, 3)).RemoveFile(1) },
			chain(4, sealed(0, 1, 2), head(1, 3)), nil,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := tc.do()
			assert.ErrorIs(t, err, tc.err)
			assert.Equal(t, tc.want, got)
			assert.NoError(t, got.Validate())
		})
	}
	_, err := NewChain().RemoveFile(1)
	assert.Error(t, err, "the only file of a layer stays")
	_, err = chain(3, head(0, 1, 2)).PutLocalHead(2)
	assert.ErrorIs(t, err, ErrManyFiles)
}

func TestAListThatNoOperationMakesIsRefused(t *testing.T) {
	for name, c := range map[string]Chain{
		"no layer":                                       {},
		"a layer without a file":                         chain(2, head(0)),
		"a head with a border":                           chain(2, sealed(0, 1, 1)),
		"two layers without a border":                    chain(3, head(0, 1), head(0, 2)),
		"borders in the wrong order":                     chain(4, sealed(0, 2, 1), sealed(2, 1, 2), head(2, 3)),
		"a layer below its own number":                   chain(3, sealed(0, 2, 1), head(1, 2)),
		"a file in two layers":                           chain(3, sealed(0, 1, 1), head(1, 1)),
		"a number not given out yet":                     chain(2, head(0, 2)),
		"a border that is not flushed below one that is": chain(4, open(0, 1, 1), sealed(1, 2, 2), head(2, 3)),
		"a revert to a later number":                     {Layers: []Layer{head(0, 1)}, Next: 2, Reverted: Interval{To: 2, By: 2}},
		"numbers that descend":                           chain(4, sealed(0, 1, 3), head(1, 2)),
	} {
		assert.Error(t, c.Validate(), name)
	}
}

func TestTheActiveFileAndTheUnsealedFiles(t *testing.T) {
	c := chain(5, sealed(0, 1, 1), open(1, 2, 2, 3), head(2, 4))
	assert.Equal(t, File(3), c.Active(true), "prepared: users write below the new head")
	assert.Equal(t, File(4), c.Active(false), "switched, or opened again")
	assert.Equal(t, File(1), NewChain().Active(true))
	assert.Equal(t, []File{2, 3, 4}, c.Unsealed())
	assert.Equal(t, []File{2}, chain(3, sealed(0, 1, 1), head(1, 2)).Unsealed())
	assert.Equal(t, []File{1}, NewChain().Unsealed())
}

// bits gives each file the blocks that it has.
func bits(m map[File][]int64) Has {
	return func(f File, b int64) bool {
		for _, have := range m[f] {
			if have == b {
				return true
			}
		}
		return false
	}
}

func TestWhereABlockIsRead(t *testing.T) {
	c := chain(5, sealed(0, 1, 1), sealed(1, 2, 2, 3), head(2, 4))
	has := bits(map[File][]int64{1: {0, 1, 2}, 2: {1, 2}, 3: {2}, 4: {0}})
	for _, tc := range []struct {
		name  string
		at    Number // 0: the volume
		block int64
		want  File // 0: zeroes
	}{
		{"the head has it", 0, 0, 4},
		{"in a snapshot the head does not count", 2, 0, 1},
		{"two files of one layer: the upper one", 2, 2, 3},
		{"two files of one layer: only the lower one has it", 0, 1, 2},
		{"the oldest snapshot", 1, 2, 1},
		{"no layer has it, for example past the end of an older size", 0, 3, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f, ok := c.Find(c.Head(), tc.block, has)
			if tc.at > 0 {
				var err error
				f, ok, err = c.FindAt(pt(tc.at), tc.block, has)
				require.NoError(t, err)
			}
			assert.Equal(t, tc.want, f)
			assert.Equal(t, tc.want != 0, ok)
		})
	}
	_, _, err := c.FindAt(pt(3), 0, has)
	assert.ErrorIs(t, err, ErrNoBorder)
}

func TestDispose(t *testing.T) {
	c := chain(5, sealed(0, 1, 1), head(1, 4))
	for f, want := range map[File]Disposal{
		1: Keep,
		2: Remove, // merged
		5: Remove, // created before the list that would name it
		6: Refuse,
		0: Refuse,
	} {
		assert.Equal(t, want, c.Dispose(f), "file %d", f)
	}
	assert.Equal(t, []File{4}, c.Missing([]File{1, 2}))
	assert.Empty(t, c.Missing([]File{1, 4}))
}
