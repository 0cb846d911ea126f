package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// history is every state of a volume and its engine that the API server reported. With it, tests find states that must
// never occur, or that must have occurred for a moment.
type history struct {
	mu      sync.Mutex
	volumes []seen[longhorn.VolumeStatus]
	engines []seen[longhorn.EngineStatus]
}

type seen[T any] struct {
	at     time.Time
	status T
}

// follow starts a history, which stops with the test.
func follow(ctx context.Context, t *testing.T, c *cluster.Cluster, volume string) *history {
	t.Helper()
	h := &history{}
	ctx, cancel := context.WithCancel(ctx)
	var watchers sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		watchers.Wait()
		if t.Failed() {
			t.Log(h)
		}
	})
	api := c.Longhorn.LonghornV1beta2()
	for name, start := range map[string]func(context.Context, metav1.ListOptions) (watch.Interface, error){
		volume:                   api.Volumes(types.Namespace).Watch,
		types.EngineName(volume): api.Engines(types.Namespace).Watch,
	} {
		watchers.Go(func() { h.record(ctx, name, start) })
	}
	return h
}

// record watches one object. When a watch stops, it starts another one, which first reports the object's current state.
func (h *history) record(ctx context.Context, name string, start func(context.Context, metav1.ListOptions) (watch.Interface, error)) {
	for ctx.Err() == nil {
		w, err := start(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
		if err != nil {
			select {
			case <-ctx.Done():
			case <-time.After(cluster.Interval):
			}
			continue
		}
		for event := range w.ResultChan() {
			h.add(event.Object)
		}
	}
}

func (h *history) add(object any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch o := object.(type) {
	case *longhorn.Volume:
		h.volumes = append(h.volumes, seen[longhorn.VolumeStatus]{time.Now(), o.Status})
	case *longhorn.Engine:
		h.engines = append(h.engines, seen[longhorn.EngineStatus]{time.Now(), o.Status})
	}
}

// was reports whether the volume had a robustness at or after a time.
func (h *history) was(robustness longhorn.VolumeRobustness, after time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.ContainsFunc(h.volumes, func(s seen[longhorn.VolumeStatus]) bool {
		return s.at.After(after) && s.status.Robustness == robustness
	})
}

// checkNeverAlone fails the test if the epoch had only one member at or after a time.
func (h *history) checkNeverAlone(t *testing.T, after time.Time) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.engines {
		if s.at.After(after) && s.status.Epoch != nil {
			assert.GreaterOrEqual(t, len(s.status.Epoch.Members), 2, "at %s one copy was left: %v", s.at.Format(time.StampMilli), *s.status.Epoch)
		}
	}
}

// expansion returns the reasons why an expansion waited after a time, each once.
func (h *history) expansion(after time.Time) (held []longhorn.Condition) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.volumes {
		c := types.FindCondition(s.status.Conditions, types.ConditionExpanded)
		isKnown := slices.ContainsFunc(held, func(k longhorn.Condition) bool { return k.Reason == c.Reason && k.Message == c.Message })
		if s.at.After(after) && c.Status == longhorn.ConditionFalse && !isKnown {
			held = append(held, c)
		}
	}
	return held
}

// wasState reports whether the volume was ever seen in a state since the history started.
func (h *history) wasState(state longhorn.VolumeState) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.ContainsFunc(h.volumes, func(s seen[longhorn.VolumeStatus]) bool { return s.status.State == state })
}

// generationAbove returns when a generation higher than a given one was first seen, or false if it never was.
func (h *history) generationAbove(generation int64) (time.Time, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.engines {
		if s.status.Generation > generation {
			return s.at, true
		}
	}
	return time.Time{}, false
}

// modes returns the modes that a replica had in its engine, in order and without repetitions: RW, WO, ERR, or - while
// the engine did not list it. The mode is "RW but not a member" while it is RW and the recorded epoch does not list the
// replica.
func (h *history) modes(replica string) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var modes []string
	for _, s := range h.engines {
		mode := string(s.status.ReplicaModeMap[replica])
		if mode == "" {
			mode = "-"
		}
		if mode == "RW" && (s.status.Epoch == nil || !slices.Contains(s.status.Epoch.Members, replica)) {
			mode = "RW but not a member"
		}
		if len(modes) == 0 || modes[len(modes)-1] != mode {
			modes = append(modes, mode)
		}
	}
	return modes
}

// checkRebuilt fails the test unless a replica was lost, and became RW only directly after WO, that is after a rebuild.
// The history may lag behind what the API server has reported to other clients, so it waits a while.
func (h *history) checkRebuilt(ctx context.Context, t *testing.T, replica string) {
	t.Helper()
	var modes []string
	cluster.Eventually(ctx, t, 10*time.Second, "replica "+replica+" is seen lost, rebuilt and a member", func(context.Context) error {
		modes = h.modes(replica)
		if n := len(modes); n < 2 || modes[n-1] != "RW" {
			return fmt.Errorf("it was %q", modes)
		}
		return nil
	})
	for i, mode := range modes[1:] {
		if mode == "RW" && modes[i] != "WO" {
			t.Errorf("replica %s became RW after %s, without a rebuild; it was %q", replica, modes[i], modes)
		}
	}
}

func (h *history) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var lines []string
	for _, s := range h.volumes {
		lines = append(lines, fmt.Sprintf("%s volume %s %s on %q remount %q", s.at.Format(time.StampMilli), s.status.State, s.status.Robustness, s.status.CurrentNodeID, s.status.RemountRequestedAt))
	}
	for _, s := range h.engines {
		lines = append(lines, fmt.Sprintf("%s engine %s generation %d session %.8s epoch %v modes %v rebuilds %v", s.at.Format(time.StampMilli), s.status.CurrentState,
			s.status.Generation, s.status.Session, s.status.Epoch, s.status.ReplicaModeMap, s.status.RebuildStatus))
	}
	slices.SortStableFunc(lines, func(a, b string) int { return strings.Compare(a[:len(time.StampMilli)], b[:len(time.StampMilli)]) })
	return "what the API server told:\n" + strings.Join(lines, "\n")
}
