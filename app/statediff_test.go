package app

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
)

func TestDiffStates(t *testing.T) {
	state := func(change ...func(*proto.State)) *proto.State {
		s := &proto.State{
			Info: &proto.InfoReply{Uuid: "process"},
			Replicas: []*proto.ReplicaState{
				{Name: "r-1", Phase: proto.Phase_PHASE_RUNNING},
				{Name: "r-2", Phase: proto.Phase_PHASE_RUNNING},
			},
			Engines: []*proto.EngineState{
				{Name: "e-1", Phase: proto.Phase_PHASE_RUNNING, Members: []*proto.MemberState{{Name: "r-1", Progress: 1}}},
				{Name: "e-2", Phase: proto.Phase_PHASE_RUNNING},
			},
		}
		for _, c := range change {
			c(s)
		}
		return s
	}
	for name, tc := range map[string]struct {
		before, now *proto.State
		want        stateDiff
	}{
		"nothing":                 {state(), state(), stateDiff{}},
		"it answers":              {nil, state(), stateDiff{all: true}},
		"it does not answer":      {state(), nil, stateDiff{all: true}},
		"another process":         {state(), state(func(s *proto.State) { s.Info.Uuid = "other" }), stateDiff{all: true}},
		"a disk hangs":            {state(), state(func(s *proto.State) { s.Disks = []*proto.DiskState{{Path: "/d"}} }), stateDiff{all: true}},
		"a rebuild progresses":    {state(), state(func(s *proto.State) { s.Engines[0].Members[0].Progress = 2 }), stateDiff{engines: []string{"e-1"}}},
		"an engine comes":         {state(), state(func(s *proto.State) { s.Engines = append(s.Engines, &proto.EngineState{Name: "e-3"}) }), stateDiff{engines: []string{"e-3"}}},
		"an engine goes":          {state(), state(func(s *proto.State) { s.Engines = s.Engines[:1] }), stateDiff{engines: []string{"e-2"}}},
		"a replica has more data": {state(), state(func(s *proto.State) { s.Replicas[1].AllocatedBytes = 2 }), stateDiff{replicas: []string{"r-2"}}},
		"a replica fails":         {state(), state(func(s *proto.State) { s.Replicas[1].Phase = proto.Phase_PHASE_ERROR }), stateDiff{replicas: []string{"r-2"}, phases: true}},
		"a replica goes":          {state(), state(func(s *proto.State) { s.Replicas = s.Replicas[:1] }), stateDiff{replicas: []string{"r-2"}, phases: true}},
		"a replica comes":         {state(func(s *proto.State) { s.Replicas = s.Replicas[:1] }), state(), stateDiff{replicas: []string{"r-2"}, phases: true}},
		"an engine is there twice, and then once": {
			state(func(s *proto.State) {
				s.Engines = append(s.Engines, &proto.EngineState{Name: "e-2", DeviceKept: true})
			}), state(), stateDiff{engines: []string{"e-2"}},
		},
		"the order is another one": {state(), state(func(s *proto.State) { slices.Reverse(s.Engines) }), stateDiff{}},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, tc.want, diffStates(tc.before, tc.now)) })
	}
}
