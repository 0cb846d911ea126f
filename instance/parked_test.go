package instance

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/longhorn-lep/longhorn-manager/instance/proto"
	"github.com/longhorn-lep/longhorn-manager/nbd"
	"github.com/longhorn-lep/longhorn-manager/replica"
	"github.com/longhorn-lep/longhorn-manager/replica/fsys"
)

// parkedNode has one replica that was written to and stopped, without a last clean close of its marks.
func parkedNode(t *testing.T) (*node, string) {
	n := newNode(t, 1)
	n.createReplica()
	c, err := nbd.Dial(t.Context(), "tcp", n.DataAddr().String(), "rw/vol/vol-r-1/1/one", nbd.DialOptions{Secret: secret})
	must(t, err)
	want := fill(t, c, 9)
	must(t, c.Close())
	must(t, n.stopReplica(0))
	return n, want
}

func (n *node) directory() string { return filepath.Join(n.root, n.replicaSpec().GetDirectory()) }

// isLocked tells whether anybody has the replica open.
func (n *node) isLocked() bool {
	n.t.Helper()
	r, err := replica.OpenCopy(fsys.Host{Root: n.root}, n.replicaSpec().GetDirectory(), specOf(n.replicaSpec()), replica.Options{})
	if replica.ReasonOf(err) == replica.Locked {
		return true
	}
	must(n.t, err)
	must(n.t, r.Close(context.Background()))
	return false
}

func TestAStoppedReplicaCanBeRead(t *testing.T) {
	n, want := parkedNode(t)
	files := func() []byte {
		meta, err := os.ReadFile(filepath.Join(n.directory(), "replica.meta"))
		must(t, err)
		marks, err := os.ReadFile(filepath.Join(n.directory(), "intent.map"))
		must(t, err)
		return append(meta, marks...)
	}
	before := files()
	if n.isLocked() {
		t.Error("a stopped replica is open before anybody reads it")
	}
	if names := (&toolExporter{n.replicas, n.engines}).List(t.Context()); !slices.Equal(names, []string{"ro/vol-r-1"}) {
		t.Errorf("exports %v", names)
	}
	if s := n.until("no replica", func(s *proto.State) bool { return s != nil && len(s.GetReplicas()) == 0 }); s == nil {
		t.Error("no state")
	}
	first, err := n.dialTool("ro/vol-r-1")
	must(t, err)
	second, err := n.dialTool("ro/vol-r-1")
	must(t, err)
	if info := first.Info(); !info.ReadOnly || info.Size != testSize ||
		info.Description != "replica of volume vol: not closed in order; 15 regions of 4194304 bytes may differ from other replicas" {
		t.Errorf("info %+v", info)
	}
	must(t, first.Close())
	if !n.isLocked() {
		t.Error("closed under the second tool")
	}
	if got := hashOf(t, second); got != want {
		t.Errorf("read %s, want %s", got, want)
	}
	must(t, second.Close())
	if n.isLocked() {
		t.Error("open after the last tool")
	}
	if !bytes.Equal(files(), before) {
		t.Error("reading changed the directory")
	}
	if _, err := n.dialTool("ro/vol-r-2"); !errors.Is(err, nbd.ErrUnknownExport) {
		t.Errorf("a replica that was never here: %v", err)
	}
}

func TestToolsThatReadAStoppedReplicaHoldNobodyUp(t *testing.T) {
	ctx := context.Background()
	for _, tc := range []struct {
		name   string
		act    func(n *node) error
		after  error // of another tool
		reason string
	}{
		{name: "it is started", act: func(n *node) error {
			_, err := n.ReplicaStart(ctx, n.replicaSpec())
			return err
		}},
		{name: "it is fenced", act: func(n *node) error { return n.stopReplica(5) }},
		{name: "it is removed", after: nbd.ErrUnknownExport, act: func(n *node) error {
			_, err := n.ReplicaRemove(ctx, n.replicaSpec())
			return err
		}},
		{name: "its removal is refused", reason: "OtherReplica", act: func(n *node) error {
			other := n.replicaSpec()
			other.Uid = "uid-other"
			_, err := n.ReplicaRemove(ctx, other)
			return err
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n, want := parkedNode(t)
			tool, err := n.dialTool("ro/vol-r-1")
			must(t, err)
			if err := tc.act(n); reason(err) != tc.reason || (tc.reason == "" && err != nil) {
				t.Fatal(err)
			}
			<-tool.Done()
			_ = tool.Close()
			again, err := n.dialTool("ro/vol-r-1")
			if !errors.Is(err, tc.after) {
				t.Fatalf("the next tool: %v", err)
			}
			if err != nil {
				return
			}
			if got := hashOf(t, again); got != want {
				t.Errorf("read %s, want %s", got, want)
			}
			must(t, again.Close())
		})
	}
}

func TestAProcessThatEndsCutsTheReadersOfStoppedReplicas(t *testing.T) {
	n, _ := parkedNode(t)
	tool, err := n.dialTool("ro/vol-r-1")
	must(t, err)
	n.stop()
	<-tool.Done()
	_ = tool.Close()
	if n.isLocked() {
		t.Error("the replica is left open")
	}
}

func TestAStoppedReplicaIsFencedDurably(t *testing.T) {
	n, _ := parkedNode(t)
	for _, generation := range []int64{5, 5, 4} {
		must(t, n.stopReplica(generation))
	}
	s, err := n.ReplicaStart(context.Background(), n.replicaSpec())
	must(t, err)
	if s.GetGeneration() != 5 {
		t.Errorf("generation %d, want 5", s.GetGeneration())
	}
	_, err = nbd.Dial(t.Context(), "tcp", n.DataAddr().String(), "rw/vol/vol-r-1/4/four", nbd.DialOptions{Secret: secret})
	if !isFenced(err) {
		t.Errorf("an engine of generation 4: %v", err)
	}
}

// Success of a fence is proof, so what cannot be fenced here must not be success.
func TestAReplicaThatCannotBeFencedIsRefused(t *testing.T) {
	n := newNode(t, 1)
	if err := n.stopReplica(3); reason(err) != reasonNotHosted {
		t.Errorf("a replica that is not here: %v", err)
	}
	if _, err := n.ReplicaStart(context.Background(), n.replicaSpec()); err != nil { // refused: it was never made
		t.Fatal(err)
	}
	if err := n.stopReplica(3); reason(err) != reasonNotHosted {
		t.Errorf("a replica that was refused: %v", err)
	}
	must(t, n.stopReplica(0))
}

func TestAnEngineElsewhereLearnsThatItWasFenced(t *testing.T) {
	n := newNode(t, 1)
	n.createReplica()
	c, err := nbd.Dial(t.Context(), "tcp", n.DataAddr().String(), "rw/vol/vol-r-1/1/one", nbd.DialOptions{Secret: secret})
	must(t, err)
	must(t, c.WriteAt(t.Context(), make([]byte, 512), 0, false))
	must(t, n.stopReplica(2))
	if err := asFenced(c.WriteAt(t.Context(), make([]byte, 512), 0, false)); !isFenced(err) {
		t.Errorf("write after the fence: %v", err)
	}
	<-c.Done() // it is not kept for long
	_ = c.Close()
}
