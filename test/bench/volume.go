package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	pb "github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
)

// volume is a volume with a replica on every node and its engine on the first.
type volume struct {
	name      string
	sizeBytes int64
	frontend  pb.Frontend
	clear     bool   // its data travels between nodes without TLS
	endpoint  string // its device, if it has one; known once attached
}

func (v *volume) engine() string { return v.name + "-e-0" }
func (v *volume) replica(number int) string {
	return fmt.Sprintf("%s-r-%d", v.name, number)
}
func (v *volume) uid(number int) string { return fmt.Sprintf("uid-%s-%d", v.name, number) }

// secret is not secret: the network belongs to the bench alone.
func (v *volume) secret() []byte { return bytes.Repeat([]byte{'s'}, 32) }

// replicaOn returns the volume's replica on a node.
func (v *volume) replicaOn(n *node) *pb.ReplicaSpec {
	return &pb.ReplicaSpec{
		Name: v.replica(n.number), Volume: v.name, Uid: v.uid(n.number), Directory: "/replicas/" + v.replica(n.number),
		DiskPath: "/", DiskUuid: diskUUID,
		SizeBytes: v.sizeBytes, Secret: v.secret(),
	}
}

// attach creates a new volume and starts it, with all its replicas.
func (b *bench) attach(ctx context.Context, v *volume) error {
	spec := &pb.EngineSpec{
		Name: v.engine(), Volume: v.name, Generation: 1, Session: "session-" + v.name, SizeBytes: v.sizeBytes, Frontend: v.frontend, Secret: v.secret(),
	}
	for _, n := range b.nodes {
		r := v.replicaOn(n)
		if _, err := n.ReplicaCreate(ctx, r); err != nil {
			return fmt.Errorf("make replica %s: %w", r.GetName(), err)
		}
		s, err := n.ReplicaStart(ctx, r)
		if err != nil {
			return fmt.Errorf("start replica %s: %w", r.GetName(), err)
		}
		if s.GetPhase() != pb.Phase_PHASE_RUNNING {
			return fmt.Errorf("start replica %s: it is %s: %s", r.GetName(), s.GetPhase(), s.GetMessage())
		}
		spec.Members = append(spec.Members, &pb.Member{Name: r.GetName(), Uid: r.GetUid(), Address: n.replicaHost(), Tls: !v.clear})
	}
	home := b.nodes[0]
	if _, err := home.EngineStart(ctx, spec); err != nil {
		return fmt.Errorf("start engine %s: %w", v.engine(), err)
	}
	s, err := home.until(ctx, "engine "+v.engine(), func(s *pb.State) bool {
		phase := v.engineState(s).GetPhase()
		return phase == pb.Phase_PHASE_RUNNING || phase == pb.Phase_PHASE_ERROR
	})
	if err != nil {
		return err
	}
	v.endpoint = v.engineState(s).GetEndpoint()
	return v.check(s)
}

func (v *volume) engineState(s *pb.State) *pb.EngineState {
	for _, e := range s.GetEngines() {
		if e.GetName() == v.engine() {
			return e
		}
	}
	return nil
}

// check refuses a volume that does not run on all its replicas, because its figures would be wrong.
func (v *volume) check(s *pb.State) error {
	e := v.engineState(s)
	if e.GetPhase() != pb.Phase_PHASE_RUNNING {
		return fmt.Errorf("engine %s is %s: %s %s", v.engine(), e.GetPhase(), e.GetReason(), e.GetMessage())
	}
	if got := len(e.GetEpoch().GetMembers()); got != nodeCount || e.GetProposedEpoch() != nil {
		return fmt.Errorf("volume %s has lost replicas: %v, %v", v.name, e.GetEpoch(), e.GetMembers())
	}
	return nil
}

// checkNow is check on the newest state.
func (b *bench) checkNow(v *volume) error {
	s, _ := b.nodes[0].current()
	return v.check(s)
}

// detach stops a volume.
func (b *bench) detach(ctx context.Context, v *volume) error {
	if _, err := b.nodes[0].EngineStop(ctx, &pb.EngineRef{Name: v.engine()}); err != nil {
		return fmt.Errorf("stop engine %s: %w", v.engine(), err)
	}
	var errs []error
	for _, n := range b.nodes {
		if _, err := n.ReplicaStop(ctx, &pb.ReplicaRef{Name: v.replica(n.number)}); err != nil {
			errs = append(errs, fmt.Errorf("stop replica %s: %w", v.replica(n.number), err))
		}
	}
	return errors.Join(errs...)
}
