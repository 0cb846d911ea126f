package app

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/controller/engine"
	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

func TestALineIsTheSameOverTheWire(t *testing.T) {
	line := layers.Line{
		Counter: 9, Points: []layers.Mark{{Point: layers.Point{Number: 8, Nonce: 1<<53 - 1}, State: layers.Ready, Holds: []string{"export"}, Group: "g"}},
		Reverted: []layers.Interval{{To: 4, By: 6}}, Bases: []layers.Base{{Point: layers.Point{Number: 2, Nonce: 5}, By: "target"}},
	}
	text, err := lineToWire(line)
	require.NoError(t, err)
	back, err := lineFromWire(text)
	require.NoError(t, err)
	assert.Equal(t, &line, back)

	text, err = lineToWire(layers.Line{})
	require.NoError(t, err)
	assert.Nil(t, text, "a volume without snapshots is on the wire as before")
	back, err = lineFromWire(nil)
	require.NoError(t, err)
	assert.Nil(t, back)
}

func TestAnEpochIsNotRecordedWithoutItsLine(t *testing.T) {
	info := &proto.InfoReply{Snapshots: true}
	proposed := &longhorn.Epoch{Counter: 1}
	o := engine.Observed{Proposed: proposed}
	addLines(&o, info, &proto.EngineState{ProposedLine: []byte(`{"counter":3}`), Line: []byte(`{"counter":2}`)})
	assert.Equal(t, engine.Observed{
		Proposed: proposed, Snapshots: true, ProposedLine: &layers.Line{Counter: 3}, Line: &layers.Line{Counter: 2},
	}, o)

	o = engine.Observed{Proposed: proposed}
	addLines(&o, info, &proto.EngineState{ProposedLine: []byte(`{"counter":"three"}`)})
	assert.Nil(t, o.Proposed)
	assert.False(t, o.Snapshots)

	o = engine.Observed{Proposed: proposed}
	addLines(&o, info, &proto.EngineState{Line: []byte("?")})
	assert.Equal(t, proposed, o.Proposed, "writes of users wait for it")
	assert.False(t, o.Snapshots)
}

func TestLayersAreThoseOfAnOpenReplica(t *testing.T) {
	r := &proto.ReplicaState{
		FormatVersion: 2, HeadBytes: 7, MergeWaits: "NeedsSpace",
		Points: []*proto.PointState{{Point: &proto.Point{Number: 4, Nonce: 61}, AllocatedBytes: 5, Flushed: true}},
	}
	info := &proto.InfoReply{Uuid: "p", Snapshots: true}
	assert.Equal(t, &longhorn.ReplicaLayers{
		UUID: "p", HeadBytes: 7, MergeWaits: "NeedsSpace", Points: []longhorn.ReplicaPoint{{Number: 4, Nonce: 61, AllocatedBytes: 5, Flushed: true}},
	}, layersFromWire(info, r))
	assert.Nil(t, layersFromWire(&proto.InfoReply{Uuid: "p"}, r), "a process of an earlier release")
	assert.Nil(t, layersFromWire(info, &proto.ReplicaState{}), "it is not open")
}
