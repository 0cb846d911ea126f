package engine

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/points"
)

func TestRangesAreReadPartByPart(t *testing.T) {
	parts := map[int64]points.Ranges{
		0:   {Ranges: []points.Range{{Offset: 0, Length: 10}, {Offset: 40, Length: 30}}, Next: 100},
		100: {Next: 300},
		300: {Ranges: []points.Range{{Offset: 310, Length: 190}}, Next: 400},
		400: {Ranges: []points.Range{{Offset: 500, Length: 4}}, Next: 9000},
	}
	r := &rangeReader{size: 512, ask: func(_ context.Context, off int64) (points.Ranges, error) { return parts[off], nil }}
	for _, step := range []struct {
		end  int64
		want []byteRange
	}{
		{50, []byteRange{{0, 10}, {40, 50}}},
		{60, []byteRange{{50, 60}}},
		{320, []byteRange{{60, 70}, {310, 320}}},
		{512, []byteRange{{320, 500}, {500, 504}}},
	} {
		got, err := r.upTo(t.Context(), step.end)
		require.NoError(t, err)
		assert.Equal(t, step.want, got, "up to %d", step.end)
	}
}

func TestAnAnswerAboutRangesIsChecked(t *testing.T) {
	for _, tc := range []struct {
		name string
		part points.Ranges
		want []byteRange // nil: an error
	}{
		{"nothing is known → everything counts", points.Ranges{Unknown: true}, []byteRange{{0, 512}}},
		{"it covers nothing", points.Ranges{}, nil},
		{"a range has no length", points.Ranges{Next: 512, Ranges: []points.Range{{Offset: 5}}}, nil},
		{"a range starts before the volume", points.Ranges{Next: 512, Ranges: []points.Range{{Offset: -5, Length: 9}}}, nil},
		{"a range ends after the volume", points.Ranges{Next: 512, Ranges: []points.Range{{Offset: 5, Length: 508}}}, nil},
		{"a range starts after the covered part", points.Ranges{Next: 5, Ranges: []points.Range{{Offset: 5, Length: 1}}}, nil},
		{"ranges overlap", points.Ranges{Next: 512, Ranges: []points.Range{{Offset: 5, Length: 5}, {Offset: 9, Length: 5}}}, nil},
		{"a range has a huge length", points.Ranges{Next: 512, Ranges: []points.Range{{Offset: 5, Length: 1<<63 - 1}}}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := &rangeReader{size: 512, ask: func(context.Context, int64) (points.Ranges, error) { return tc.part, nil }}
			got, err := r.upTo(t.Context(), 512)
			if tc.want == nil {
				require.ErrorIs(t, err, nbd.EIO)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tc.want, got)
		})
	}
}

func TestRangesThatAreCloseAreCopiedAsOne(t *testing.T) {
	const gap = joinHoleBytes
	for _, tc := range []struct {
		name     string
		in, want []byteRange
	}{
		{"none", nil, nil},
		{"they overlap, in any order", []byteRange{{50, 90}, {0, 60}}, []byteRange{{0, 90}}},
		{"one contains another", []byteRange{{0, 100}, {10, 20}}, []byteRange{{0, 100}}},
		{"a short gap", []byteRange{{0, 10}, {10 + gap, 20 + gap}}, []byteRange{{0, 20 + gap}}},
		{"a long gap", []byteRange{{0, 10}, {11 + gap, 20 + gap}}, []byteRange{{0, 10}, {11 + gap, 20 + gap}}},
	} {
		t.Run(tc.name, func(t *testing.T) { assert.Equal(t, tc.want, unite(tc.in)) })
	}
}
