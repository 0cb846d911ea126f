package app

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// TestRevertLineFollowsTheRulesOfTheLayers compares types.RevertLine with the rules that replicas follow, for each
// line of four points: each point is absent, or has one of the states, with or without a job that reads it. Only this
// package may know both.
func TestRevertLineFollowsTheRulesOfTheLayers(t *testing.T) {
	kinds := []longhorn.LinePoint{
		{},
		{State: longhorn.PointStateIntended},
		{State: longhorn.PointStateReady},
		{State: longhorn.PointStateDeleted},
		{State: longhorn.PointStateReady, Holds: []string{"job"}},
		{State: longhorn.PointStateDeleted, Holds: []string{"job"}},
	}
	compared := 0
	for code := range 6 * 6 * 6 * 6 {
		line := &longhorn.Line{Counter: 9, Reverted: &longhorn.LineInterval{To: 1, By: 2}, Bases: []longhorn.LineBase{{Number: 3, Nonce: 30, By: "b"}, {Number: 7, Nonce: 70, By: "c"}}}
		for i, rest := 0, code; i < 4; i, rest = i+1, rest/6 {
			p := kinds[rest%6]
			p.Number, p.Nonce, p.Name = int64(2*i+1), int64(20*i+10), fmt.Sprintf("s%d", 2*i+1)
			if p.State != "" {
				line.Points = append(line.Points, p)
			}
		}
		for _, to := range line.Points {
			got, err := types.RevertLine(line, to.Name)
			want, refused := layersOf(line).Revert(layers.Point{Number: layers.Number(to.Number), Nonce: uint64(to.Nonce)})
			require.Equal(t, refused == nil, err == nil, "line %+v to %s: %v, %v", line, to.Name, refused, err)
			if err == nil {
				require.JSONEq(t, text(t, want), text(t, layersOf(got)), "line %+v to %s", line, to.Name)
			}
			compared++
		}
	}
	require.Greater(t, compared, 1000, "the test compares something")
}

// layersOf converts a line of an object.
func layersOf(l *longhorn.Line) layers.Line {
	states := map[longhorn.PointState]layers.State{
		longhorn.PointStateIntended: layers.Intended, longhorn.PointStateReady: layers.Ready, longhorn.PointStateDeleted: layers.Deleted,
	}
	converted := layers.Line{Counter: layers.Number(l.Counter)}
	for _, p := range l.Points {
		converted.Points = append(converted.Points, layers.Mark{
			Point: layers.Point{Number: layers.Number(p.Number), Nonce: uint64(p.Nonce)}, State: states[p.State], Holds: slices.Clone(p.Holds),
		})
	}
	if l.Reverted != nil {
		converted.Reverted = []layers.Interval{{To: layers.Number(l.Reverted.To), By: layers.Number(l.Reverted.By)}}
	}
	for _, b := range l.Bases {
		converted.Bases = append(converted.Bases, layers.Base{Point: layers.Point{Number: layers.Number(b.Number), Nonce: uint64(b.Nonce)}, By: b.By})
	}
	return converted
}

func text(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	require.NoError(t, err)
	return string(data)
}
