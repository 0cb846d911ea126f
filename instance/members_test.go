package instance

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/longhorn-lep/longhorn-manager/engine"
	"github.com/longhorn-lep/longhorn-manager/instance/proto"
)

// A member is lost while the volume is written, the volume goes on, the member comes back and is made equal while the volume is
// written: in the end all three replicas hold the same.
func TestAVolumeOutlivesAMemberAndTakesItBack(t *testing.T) {
	ctx := context.Background()
	c := newCluster(t)
	home, lost := c[0], c[2]
	o := c.manage(home, c.engineSpec(1, nil))
	v, err := home.dialTool("engine/" + volume)
	must(t, err)
	writer := scribble(v)
	writer.more()
	lost.stop()
	if m := o.untilMember(lost, engine.ModeERR); m.GetError() == "" {
		t.Errorf("the lost member shows no error: %v", m)
	}
	writer.more()
	if e := o.epoch(); !slices.Equal(e.Members, []string{"vol-r-1", "vol-r-2"}) || e.Counter < 2 {
		t.Errorf("recorded %s", e)
	}

	lost.start()
	lost.startReplica()
	_, err = home.EngineAddReplica(ctx, o.memberRequest(lost, 0))
	must(t, err)
	if m := o.untilMember(lost, engine.ModeRW); m.GetRebuilding() || m.GetError() != "" {
		t.Errorf("the member that is back: %v", m)
	}
	_, err = home.EngineAddReplica(ctx, o.memberRequest(lost, 0)) // of a member
	must(t, err)
	writer.more()
	must(t, writer.end(t))
	want := hashOf(t, v)
	must(t, v.Close())
	home.stopEngine()
	if e := o.epoch(); len(e.Members) != 3 {
		t.Errorf("recorded %s", e)
	}
	for _, parked := range []bool{false, true} {
		for _, n := range c {
			if got := n.replicaHash(); got != want {
				t.Errorf("replica %d, parked %t: %s, want %s", n.number, parked, got, want)
			}
			must(t, n.stopReplica(0))
		}
	}
}

func TestMembersAreRemovedAndRebuiltOneAtATime(t *testing.T) {
	ctx := context.Background()
	c := newCluster(t)
	home := c[0]
	o := c.manage(home, c.engineSpec(1, nil))
	v, err := home.dialTool("engine/" + volume)
	must(t, err)
	want := fill(t, v, 4)

	stranger := o.memberRequest(c[1], 0)
	stranger.Session = "another"
	if _, err := home.EngineRemoveReplica(ctx, stranger); reason(err) != reasonSession {
		t.Errorf("removal under another session: %v", err)
	}
	if _, err := home.EngineAddReplica(ctx, stranger); reason(err) != reasonSession {
		t.Errorf("addition under another session: %v", err)
	}
	for _, n := range c[1:] {
		_, err := home.EngineRemoveReplica(ctx, o.memberRequest(n, 0))
		must(t, err)
		home.until("an epoch without it", func(*proto.State) bool { return !o.epoch().Has(n.replicaName()) })
	}
	if _, err := home.EngineRemoveReplica(ctx, o.memberRequest(home, 0)); reason(err) != reasonLastMember {
		t.Errorf("removal of the last member: %v", err)
	}

	_, err = home.EngineAddReplica(ctx, o.memberRequest(c[1], 64<<10)) // takes minutes
	must(t, err)
	o.untilMember(c[1], engine.ModeWO)
	c[1].until("the mark of a rebuild", func(*proto.State) bool {
		return c[1].replicas.find(c[1].replicaName()).replica.State().Rebuilding
	})
	if _, err := home.EngineAddReplica(ctx, o.memberRequest(c[2], 0)); reason(err) != reasonBusy {
		t.Errorf("a second rebuild: %v", err)
	}
	_, err = home.EngineRemoveReplica(ctx, o.memberRequest(c[1], 0))
	must(t, err)
	home.until("the end of the rebuild", func(s *proto.State) bool { return c[1].member(s).GetMode() != engine.ModeWO })
	c[1].until("no connection", func(s *proto.State) bool { return !c[1].replicaState(s).GetConnected() })
	half, err := c[1].dialTool("ro/" + c[1].replicaName())
	must(t, err)
	if d := half.Info().Description; !strings.Contains(d, "incomplete") {
		t.Errorf("half a replica is described as %q", d)
	}
	must(t, half.Close())

	for _, n := range c[1:] {
		o.add(n)
		o.untilMember(n, engine.ModeRW)
	}
	must(t, v.Close())
	home.stopEngine()
	for _, n := range c {
		if got := n.replicaHash(); got != want {
			t.Errorf("replica %d has %s, want %s", n.number, got, want)
		}
	}
}

// The engine's node does not answer; somebody raised the generation and fences one replica. Whichever it is, the engine
// acknowledges nothing from then on.
func TestAfterAFenceTheOlderEngineAcknowledgesNothing(t *testing.T) {
	for name, victim := range map[string]int{"of the replica beside the engine": 0, "of a replica elsewhere": 1} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			home := c[0]
			o := c.manage(home, c.engineSpec(3, nil))
			v, err := home.dialTool("engine/" + volume)
			must(t, err)
			writer := scribble(v)
			writer.more()
			o.overtake(4)
			must(t, c[victim].stopReplica(4))

			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			if err := v.WriteAt(ctx, make([]byte, 4096), 0, false); err == nil {
				t.Error("a write was acknowledged after the fence")
			}
			if e := home.untilEngine(proto.Phase_PHASE_ERROR); e.GetReason() != engine.ReasonFenced {
				t.Errorf("reason %s: %s", e.GetReason(), e.GetMessage())
			}
			if writer.end(t) == nil {
				t.Error("writes went on")
			}
			must(t, v.Close())
			c[victim].startReplica()
			s := c[victim].until("the replica", func(s *proto.State) bool { return c[victim].replicaState(s) != nil })
			if got := c[victim].replicaState(s).GetGeneration(); got != 4 {
				t.Errorf("generation %d, want 4", got)
			}
			_, err = home.EngineStop(t.Context(), &proto.EngineRef{Name: volume + "-e-0", Force: true})
			must(t, err)
		})
	}
}
