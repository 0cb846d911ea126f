package types

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

func point(number int64, name string, state longhorn.PointState, holds ...string) longhorn.LinePoint {
	return longhorn.LinePoint{Number: number, Nonce: 10 * number, Name: name, State: state, Holds: holds}
}

func TestRevertLine(t *testing.T) {
	const ready, deleted, intended = longhorn.PointStateReady, longhorn.PointStateDeleted, longhorn.PointStateIntended
	for name, c := range map[string]struct {
		line *longhorn.Line
		want *longhorn.Line
		err  error
		text string
	}{
		"the newest snapshot → only the interval is added": {
			line: &longhorn.Line{Counter: 4, Points: []longhorn.LinePoint{point(2, "a", ready), point(4, "s", ready)}},
			want: &longhorn.Line{
				Counter: 5, Points: []longhorn.LinePoint{point(2, "a", ready), point(4, "s", ready)},
				Reverted: &longhorn.LineInterval{To: 4, By: 5},
			},
		},
		"later points are deleted → they leave the line": {
			line: &longhorn.Line{
				Counter: 7, Points: []longhorn.LinePoint{point(2, "a", deleted, "export"), point(4, "s", ready), point(6, "b", deleted)},
				Reverted: &longhorn.LineInterval{To: 1, By: 2},
				Bases:    []longhorn.LineBase{{Number: 2, By: "x"}, {Number: 4, By: "y"}, {Number: 5, By: "z"}},
			},
			want: &longhorn.Line{
				Counter: 8, Points: []longhorn.LinePoint{point(2, "a", deleted, "export"), point(4, "s", ready)},
				Reverted: &longhorn.LineInterval{To: 4, By: 8},
				Bases:    []longhorn.LineBase{{Number: 2, By: "x"}, {Number: 4, By: "y"}},
			},
		},
		"a deleted snapshot had the name → the ready one counts": {
			line: &longhorn.Line{Counter: 4, Points: []longhorn.LinePoint{point(2, "s", deleted), point(4, "s", ready)}},
			want: &longhorn.Line{
				Counter: 5, Points: []longhorn.LinePoint{point(2, "s", deleted), point(4, "s", ready)},
				Reverted: &longhorn.LineInterval{To: 4, By: 5},
			},
		},
		"later snapshots → refused, with their names": {
			line: &longhorn.Line{Counter: 6, Points: []longhorn.LinePoint{point(4, "s", ready), point(5, "b", ready), point(6, "", ready)}},
			err:  ErrLaterSnapshots, text: "later snapshots exist, and they would be lost: b, number 6 of the system",
		},
		"a job reads a later point → refused": {
			line: &longhorn.Line{Counter: 6, Points: []longhorn.LinePoint{point(4, "s", ready), point(5, "b", deleted, "export-1")}},
			err:  ErrPointHeld, text: "a job is reading a later snapshot: b (export-1)",
		},
		"a snapshot is being taken → refused": {
			line: &longhorn.Line{Counter: 6, Points: []longhorn.LinePoint{point(4, "s", ready), point(6, "b", intended)}},
			err:  ErrLineBusy, text: "a snapshot of the volume is being taken",
		},
		"the snapshot was deleted → refused": {
			line: &longhorn.Line{Counter: 4, Points: []longhorn.LinePoint{point(4, "s", deleted)}},
			err:  ErrPointNotReady, text: "it is not ready",
		},
		"no line → refused": {err: ErrPointNotReady, text: "it is not ready"},
	} {
		t.Run(name, func(t *testing.T) {
			before := c.line.DeepCopy()
			got, err := RevertLine(c.line, "s")
			assert.Equal(t, before, c.line, "the argument is not modified")
			if c.err != nil {
				require.ErrorIs(t, err, c.err)
				assert.EqualError(t, err, c.text)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.want, got)
		})
	}
}
