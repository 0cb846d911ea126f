package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
)

// Figures of the volume that loses a replica for a while.
const (
	awayBytes    = 50 << 30
	writtenBytes = 4 << 30 // before the replica leaves
	changedBytes = 1 << 30 // while it is away, in the middle of the written data
	// quiet is the time after which no region is marked. If a replica leaves earlier, the marked regions are sent to it
	// too.
	quiet = 15 * time.Second
)

// measureAway prints how much data is sent to a replica that was away, and to a new replica.
func (b *bench) measureAway(ctx context.Context) error {
	if err := b.startNodes(ctx, "away"); err != nil {
		return err
	}
	v := &volume{name: "bench-away", sizeBytes: awayBytes, frontend: pb.Frontend_FRONTEND_SOCKET}
	if err := b.attach(ctx, v); err != nil {
		return err
	}
	t := socketTarget(socketName, b.nodes[0].toolSocket(), "engine/"+v.name)
	if err := writeInARow(ctx, t, 0, writtenBytes); err != nil {
		return err
	}
	select {
	case <-time.After(quiet):
	case <-ctx.Done():
		return ctx.Err()
	}
	last := b.nodes[nodeCount-1]
	old := v.replicaOn(last)
	if err := b.leaveOut(ctx, v, old); err != nil {
		return err
	}
	if err := writeInARow(ctx, t, writtenBytes/2, changedBytes); err != nil {
		return err
	}
	rows := [][]string{}
	measure := func(what string, r *pb.ReplicaSpec) error {
		sent, took, err := b.rebuild(ctx, v, last, r)
		rows = append(rows, []string{what, fmt.Sprintf("%.2f GiB", float64(sent)/(1<<30)), took.Round(10 * time.Millisecond).String()})
		return err
	}
	if err := measure("it was away", old); err != nil {
		return err
	}
	if err := b.leaveOut(ctx, v, old); err != nil {
		return err
	}
	another, err := b.another(ctx, last, old)
	if err != nil {
		return err
	}
	if err := measure("it is new", another); err != nil {
		return err
	}
	fmt.Printf("\nWhat a replica of a volume of %d GiB is sent, of which %d GiB were written, and %d GiB again while a replica was away; with all headers\n\n",
		awayBytes>>30, writtenBytes>>30, changedBytes>>30)
	writeTable(os.Stdout, []string{"", "sent", "took"}, rows)
	if _, err := b.nodes[0].EngineStop(ctx, &pb.EngineRef{Name: v.engine()}); err != nil {
		return fmt.Errorf("stop engine %s: %w", v.engine(), err)
	}
	return b.stopNodes(ctx)
}

func writeInARow(ctx context.Context, t target, off, length int64) error {
	args := append([]string{
		"--name=write", "--rw=write", "--bs=1M", "--iodepth=4", fmt.Sprint("--offset=", off), fmt.Sprint("--size=", length), "--end_fsync=1", "--output-format=json",
	}, t.args...)
	_, err := fio(ctx, 5*time.Minute, args)
	return err
}

// leaveOut expels a replica and stops it.
func (b *bench) leaveOut(ctx context.Context, v *volume, r *pb.ReplicaSpec) error {
	home, last := b.nodes[0], b.nodes[nodeCount-1]
	if _, err := home.EngineRemoveReplica(ctx, v.request(&pb.Member{Name: r.GetName()})); err != nil {
		return fmt.Errorf("leave replica %s out: %w", r.GetName(), err)
	}
	if _, err := home.until(ctx, "an epoch without "+r.GetName(), func(s *pb.State) bool { return !v.isIn(s, r.GetName()) }); err != nil {
		return err
	}
	_, err := last.ReplicaStop(ctx, &pb.ReplicaRef{Name: r.GetName()})
	return err
}

// rebuildLimit bounds how long a rebuild may take.
const rebuildLimit = 5 * time.Minute

// rebuild rebuilds a replica until it is a member. It returns the bytes that the replica's node received in this time,
// and how long the rebuild took.
func (b *bench) rebuild(ctx context.Context, v *volume, on *node, r *pb.ReplicaSpec) (sent int64, took time.Duration, err error) {
	before, err := on.received(ctx)
	if err != nil {
		return 0, 0, err
	}
	began := time.Now()
	if err := b.beginRebuild(ctx, v, on, r); err != nil {
		return 0, 0, err
	}
	if err := b.awaitRebuilt(ctx, v, r); err != nil {
		return 0, 0, err
	}
	took = time.Since(began)
	after, err := on.received(ctx)
	return after - before, took, err
}

// beginRebuild starts a replica and lets the engine rebuild it.
func (b *bench) beginRebuild(ctx context.Context, v *volume, on *node, r *pb.ReplicaSpec) error {
	if _, err := on.ReplicaStart(ctx, r); err != nil {
		return fmt.Errorf("start replica %s: %w", r.GetName(), err)
	}
	member := &pb.Member{Name: r.GetName(), Uid: r.GetUid(), Address: on.replicaHost()}
	if _, err := b.nodes[0].EngineAddReplica(ctx, v.request(member)); err != nil {
		return fmt.Errorf("add replica %s: %w", r.GetName(), err)
	}
	return nil
}

func (b *bench) awaitRebuilt(ctx context.Context, v *volume, r *pb.ReplicaSpec) error {
	s, err := b.nodes[0].untilWithin(ctx, rebuildLimit, "an epoch with "+r.GetName(), func(s *pb.State) bool {
		return v.isIn(s, r.GetName()) || v.hasFailed(s, r.GetName())
	})
	if err == nil && !v.isIn(s, r.GetName()) {
		err = fmt.Errorf("the rebuild of replica %s has failed: %v", r.GetName(), v.engineState(s).GetMembers())
	}
	return err
}

// another creates an empty replica in the place of an expelled one.
func (b *bench) another(ctx context.Context, on *node, old *pb.ReplicaSpec) (*pb.ReplicaSpec, error) {
	r := proto.CloneOf(old)
	r.Name, r.Uid, r.Directory = old.GetName()+"b", old.GetUid()+"b", old.GetDirectory()+"b"
	if _, err := on.ReplicaCreate(ctx, r); err != nil {
		return nil, fmt.Errorf("make replica %s: %w", r.GetName(), err)
	}
	return r, nil
}

func (v *volume) request(m *pb.Member) *pb.EngineMemberRequest {
	return &pb.EngineMemberRequest{Name: v.engine(), Session: "session-" + v.name, Member: m}
}

// hasFailed reports whether the engine has set a replica to ERR.
func (v *volume) hasFailed(s *pb.State, replica string) bool {
	return slices.ContainsFunc(v.engineState(s).GetMembers(), func(m *pb.MemberState) bool {
		return m.GetName() == replica && m.GetMode() == "ERR"
	})
}

// isIn reports whether a replica is a member of the recorded epoch, or an epoch without it is proposed.
func (v *volume) isIn(s *pb.State, replica string) bool {
	e := v.engineState(s)
	return slices.Contains(e.GetEpoch().GetMembers(), replica) || e.GetProposedEpoch() != nil && !slices.Contains(e.GetProposedEpoch().GetMembers(), replica)
}

// received returns how many bytes the node has received from the others.
func (n *node) received(ctx context.Context) (int64, error) {
	out, err := command(ctx, "ip", "-n", n.namespace, "-s", "-j", "link", "show", "eth0")
	if err != nil {
		return 0, err
	}
	var links []struct {
		Stats struct {
			RX struct {
				Bytes int64 `json:"bytes"`
			} `json:"rx"`
		} `json:"stats64"`
	}
	if err := json.Unmarshal([]byte(out), &links); err != nil || len(links) != 1 {
		return 0, errors.Join(fmt.Errorf("ip says %q", out), err)
	}
	return links[0].Stats.RX.Bytes, nil
}
