package volume

import (
	"fmt"

	"github.com/longhorn-lep/longhorn-manager/controller/volume/copies"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// setRobustness sets the robustness and the condition Faulted. fault is what prevents the volume from being attached
// or detached, if anything does.
func setRobustness(in Input, c copies.State, fault *Fault, p *Plan) {
	if ended := engineFault(in.Engine); ended != nil {
		fault = ended
	}
	s := &p.Status
	switch attached := s.State == longhorn.VolumeStateAttached; {
	case fault != nil:
		setCondition(p, in.Now, types.ConditionFaulted, longhorn.ConditionTrue, fault.reason, fault.message)
		s.Robustness = longhorn.VolumeRobustnessFaulted
	case attached && c.Known:
		setCondition(p, in.Now, types.ConditionFaulted, longhorn.ConditionFalse, "", "")
		count(in, c, s)
	case !attached && s.State != longhorn.VolumeStateDetached && types.IsConditionTrue(s.Conditions, types.ConditionFaulted):
		s.Robustness = longhorn.VolumeRobustnessFaulted // until it serves, or is no longer requested
	default:
		if types.IsConditionTrue(s.Conditions, types.ConditionFaulted) {
			setCondition(p, in.Now, types.ConditionFaulted, longhorn.ConditionFalse, "", "")
		}
		s.Robustness = longhorn.VolumeRobustnessUnknown
	}
}

// engineFault is why an engine has failed; nil: it has not failed, or it was lost with its process.
func engineFault(e *longhorn.Engine) *Fault {
	why := types.FindCondition(e.Status.Conditions, types.ConditionInstanceCreation)
	if !failed(e) || why.Reason == types.ReasonEngineGone {
		return nil
	}
	return &Fault{types.ReasonEngineFailed, fmt.Sprintf("the engine on node %s stopped: %s: %s", e.Spec.NodeID, why.Reason, why.Message)}
}

// count compares the number of healthy replicas with the requested number. LastDegradedAt is the time since when the
// volume has too few healthy replicas; a new attachment does not reset it.
func count(in Input, c copies.State, s *longhorn.VolumeStatus) {
	if c.Healthy() >= in.Volume.Spec.NumberOfReplicas {
		s.Robustness = longhorn.VolumeRobustnessHealthy
		s.LastDegradedAt = ""
		return
	}
	s.Robustness = longhorn.VolumeRobustnessDegraded
	if s.LastDegradedAt == "" {
		s.LastDegradedAt = types.Timestamp(in.Now)
	}
}
