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

// succeedWithout is how long a succession waits for replicas of this node that the previous process also served. It
// is counted from the time at which the succession was first seen. An engine that starts without one of these
// replicas expels it, and a rebuild copies it completely.
const succeedWithout = 30 * time.Second

// planKept makes an engine succeed another one after the process of that one exited while its device was kept. The
// device's users wait in the meantime; they notice only the pause.
//
//	Engine.status.endpoint    session of the device                  action
//	empty                     any: no user knows the device          remove the device
//	set                       the status's: the engine that ran      wait for the replicas here; generation+1; start
//	set                       an older one: its successor was raised start the successor, unless its process exited too:
//	                          and did not take the device over       generation+1; start
//
// The endpoint in the status is the reason to keep the device. It is set when the engine runs, stays through any
// number of successions, and is cleared when the engine is stopped, is assumed stopped, or fails. So while it is set,
// no other engine has written to the volume since the device's session, and the users' cached data is valid.
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

// succeed raises the generation for the successor, when the replicas of this node serve again.
func succeed(in Input, p *Plan) {
	s := &p.Status
	s.CurrentState = longhorn.InstanceStateStarting
	message := "the process that served the device has exited; its users wait for its successor"
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

// awaited names the replicas of this node that a successor should have from its start. These are members that should
// run, but do not run in the current process yet.
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
