package app

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/client"
	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
)

func TestDiffOf(t *testing.T) {
	running := &proto.ReplicaState{Name: "r", Phase: proto.Phase_PHASE_RUNNING}
	replicas := func(before, now *proto.ReplicaState) client.Change {
		return client.Change{Replicas: []client.Changed[*proto.ReplicaState]{{Name: "r", Before: before, Now: now}}}
	}
	engine := &proto.EngineState{Name: "e"}
	engines := func(before, now *proto.EngineState) client.Change {
		return client.Change{Engines: []client.Changed[*proto.EngineState]{{Name: "e", Before: before, Now: now}}}
	}
	for name, tc := range map[string]struct {
		change client.Change
		want   stateDiff
	}{
		"nothing changes":         {client.Change{}, stateDiff{}},
		"the process changes":     {client.Change{All: true}, stateDiff{all: true}},
		"a rebuild progresses":    {engines(engine, engine), stateDiff{engines: []string{"e"}}},
		"an engine appears":       {engines(nil, engine), stateDiff{engines: []string{"e"}, hosts: true}},
		"an engine disappears":    {engines(engine, nil), stateDiff{engines: []string{"e"}, hosts: true}},
		"a replica has more data": {replicas(running, &proto.ReplicaState{Name: "r", Phase: running.Phase, AllocatedBytes: 1}), stateDiff{replicas: []string{"r"}}},
		"a replica fails":         {replicas(running, &proto.ReplicaState{Name: "r", Phase: proto.Phase_PHASE_ERROR}), stateDiff{replicas: []string{"r"}, phases: true}},
		"a replica appears":       {replicas(nil, running), stateDiff{replicas: []string{"r"}, phases: true, hosts: true}},
		"a replica disappears":    {replicas(running, nil), stateDiff{replicas: []string{"r"}, phases: true, hosts: true}},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, tc.want, diffOf(tc.change)) })
	}
}
