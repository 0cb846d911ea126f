package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// succeedWithout is how long a succession waits for replicas of this node that the process before
// served too, counted from when the succession was first seen. An engine that starts without one
// of them expels it, and then a rebuild copies it whole.
const succeedWithout = 30 * time.Second

// planKept makes an engine succeed one whose process ended while its device was kept. The device's
// users wait meanwhile; they notice only the pause.
//
//	Engine.status.endpoint    of which session the device is         then
//	empty                     any: nobody was told of the device     it is removed
//	set                       the status's: the engine that ran      wait for the replicas here; generation+1; start
//	set                       an older one: its successor was raised start that one, unless its process ended too:
//	                          and did not take the device over       generation+1; start
//
// The endpoint in the status makes the device worth keeping: it stays there from the moment the
// engine runs, through any number of successions, and goes when the engine is stopped, abandoned
// or fails. So while it is there, nothing else has written the volume since the device's session,
// and the users' cached data is the volume's.
func planKept(in Input, p *Plan) {
	s := &p.Status
	switch {
	case s.CurrentState == longhorn.InstanceStateError:
		// It had failed before; the volume controller stops it.
	case s.Endpoint == "" && in.Observed.Session == s.Session:
		p.Action = ActionAbort
	case s.Endpoint == "":
		p.Action = ActionEvict
	case in.Observed.Session != s.Session && s.UUID == in.Observed.Process:
		s.CurrentReplicaAddressMap = maps.Clone(in.Engine.Spec.ReplicaAddressMap)
		p.Action = ActionStart // raised, but not started before a crash of this daemon
	default:
		succeed(in, p)
	}
}

// succeed raises the generation for the successor, once the replicas of this node serve again.
func succeed(in Input, p *Plan) {
	s := &p.Status
	s.CurrentState = longhorn.InstanceStateStarting
	message := "the process that served the device has ended; its users wait for the next one"
	if len(in.Awaited) > 0 {
		message += ", which waits for " + strings.Join(in.Awaited, ", ")
	}
	setCreation(p, in.Now, longhorn.ConditionUnknown, types.ReasonEngineSucceeds, message)
	since := types.FindCondition(s.Conditions, types.ConditionInstanceCreation).LastTransitionTime
	if left := types.Until(since, succeedWithout, in.Now); len(in.Awaited) > 0 && left > 0 {
		p.After = left
		return
	}
	raise(in, p)
}

// awaited names the replicas of this node that a successor should have from its beginning: members
// that should run, and do not yet in the process that is here now.
func (c *Controller) awaited(ctx context.Context, e *longhorn.Engine) ([]string, error) {
	if e.Status.Epoch == nil {
		return nil, nil
	}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(e.Spec.ReplicaAddressMap)) {
		if !slices.Contains(e.Status.Epoch.Members, name) {
			continue
		}
		r, err := c.Replicas.Live(ctx, name)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read replica %s: %w", name, err)
		}
		if r.Spec.NodeID != c.Node || r.DeletionTimestamp != nil || r.Spec.DesireState != longhorn.DesireStateRunning {
			continue
		}
		switch c.DataPlane.ReplicaPhase(name) {
		case types.PhaseRunning, types.PhaseError:
		default:
			names = append(names, "replica "+name)
		}
	}
	return names, nil
}
