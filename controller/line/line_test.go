package line

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

var now = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

// full has every field of a line.
func full() *longhorn.Line {
	return &longhorn.Line{
		Counter: 9,
		Points: []longhorn.LinePoint{
			{Number: 4, Nonce: 61, State: longhorn.PointStateDeleted, Name: "a", CreatedAt: "2030-01-01T00:00:00Z", SizeBytes: 7, Holds: []string{"export"}},
			{Number: 8, Nonce: NonceLimit - 1, State: longhorn.PointStateReady, Name: "b", CreatedAt: "2030-01-02T00:00:00Z", SizeBytes: 8},
			{Number: 9, Nonce: 3, State: longhorn.PointStateIntended, Name: "c", Group: "g"},
		},
		Reverted: &longhorn.LineInterval{To: 4, By: 6},
		Bases:    []longhorn.LineBase{{Number: 2, Nonce: 5, By: "target"}},
	}
}

func TestALineIsTheSameAfterARoundTrip(t *testing.T) {
	for name, l := range map[string]*longhorn.Line{"nil": nil, "full": full(), "no points left": {Counter: 3}} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, l, Object(Rules(l), l))
			text, err := json.Marshal(Rules(l)) // as it goes to the data plane and back
			require.NoError(t, err)
			var back layers.Line
			require.NoError(t, json.Unmarshal(text, &back))
			assert.Equal(t, l, Object(back, l))
		})
	}
}

// TestRulesHaveEverythingButNames: what the rules do not know would be lost in the data plane.
func TestRulesHaveEverythingButNames(t *testing.T) {
	want := full()
	for i := range want.Points {
		want.Points[i].Name, want.Points[i].CreatedAt, want.Points[i].SizeBytes = "", "", 0
	}
	assert.Equal(t, want, Object(Rules(full()), nil))
}

func TestALineKeepsNamesByNumberAndNonce(t *testing.T) {
	r := Rules(full())
	r.Points[1].Nonce++
	l := Object(r, full())
	assert.Equal(t, "a", l.Points[0].Name)
	assert.Empty(t, l.Points[1].Name, "it is another point with the same number")
}

func TestAStartNamesWhatItAdopts(t *testing.T) {
	was := full()
	r := Rules(was)
	r.Points = append(r.Points[:2], layers.Mark{Point: layers.Point{Number: 11, Nonce: 35}, State: layers.Ready})
	r.Counter = 12
	l := Started(r, was, "vol", 1<<30, now)
	assert.Equal(t, was.Points[:2], l.Points[:2])
	assert.Equal(t, longhorn.LinePoint{
		Number: 11, Nonce: 35, State: longhorn.PointStateReady, Name: "vol-11-z", CreatedAt: "2030-01-02T03:04:05Z", SizeBytes: 1 << 30,
	}, l.Points[2])
	assert.Nil(t, Started(layers.Line{}, nil, "vol", 0, now), "a volume that never had a snapshot")
}

func TestIntend(t *testing.T) {
	_, err := Intend(full(), "d", 5)
	require.ErrorIs(t, err, layers.ErrBusy)
	l, err := Intend(nil, "d", 5)
	require.NoError(t, err)
	want := longhorn.LinePoint{Number: 1, Nonce: 5, State: longhorn.PointStateIntended, Name: "d"}
	assert.Equal(t, &longhorn.Line{Counter: 1, Points: []longhorn.LinePoint{want}}, l)
	assert.Equal(t, &want, Intended(l))

	l, err = Ready(l, Point(want), now, 1<<30)
	require.NoError(t, err)
	want.State, want.CreatedAt, want.SizeBytes = longhorn.PointStateReady, "2030-01-02T03:04:05Z", 1<<30
	assert.Equal(t, &want, Named(l, "d"))
	assert.Nil(t, Intended(l))

	l, err = Change(l, Point(want), layers.Line.Delete)
	require.NoError(t, err)
	assert.Nil(t, Named(l, "d"), "the name is free again")
	assert.Equal(t, longhorn.PointStateDeleted, Find(l, Point(want)).State)

	_, err = Change(l, Point(want), layers.Line.GiveUp)
	require.ErrorIs(t, err, layers.ErrNoPoint)
}

func TestNothingIsFoundInNoLine(t *testing.T) {
	assert.Nil(t, Named(nil, "a"))
	assert.Nil(t, Named(full(), ""), "points of the system have no name")
	assert.Nil(t, Intended(nil))
	assert.Nil(t, Find(nil, layers.Point{Number: 1}))
}
