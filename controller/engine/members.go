package engine

import (
	"maps"
	"net"
	"slices"
	"strconv"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

// planMembers makes a running engine follow spec.replicaAddressMap, one replica at a time. It removes a replica that
// the spec no longer lists, and adds a replica that is new in the spec.
//
//	spec        status.currentReplicaAddressMap   mode      action
//	lists it    has the same address              any       none: it was tried, and the mode shows the result
//	lists it    lacks it, or has another address  RW, WO    none
//	lists it    lacks it, or has another address  ERR, none added, unless another one is being rebuilt
//	lacks it    -                                 RW        removed, if the spec lists another member
//	lacks it    -                                 WO        its rebuild is canceled
//
// A replica is tried once for each time that the spec requests it. For another attempt, remove it from the spec,
// wait until it has left the status, and add it again.
func planMembers(in Input, p *Plan) {
	spec, modes := in.Engine.Spec.ReplicaAddressMap, in.Observed.Modes
	rebuilding, keeps := false, false
	for name, mode := range modes {
		rebuilding = rebuilding || mode == longhorn.ReplicaModeWO
		keeps = keeps || mode == longhorn.ReplicaModeRW && spec[name] != ""
	}
	for _, name := range slices.Sorted(maps.Keys(modes)) {
		if spec[name] == "" && (modes[name] == longhorn.ReplicaModeWO || modes[name] == longhorn.ReplicaModeRW && keeps) {
			p.Action, p.Replica = ActionRemove, name
			return
		}
	}
	if rebuilding {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(spec)) {
		if modes[name] != longhorn.ReplicaModeRW && p.Status.CurrentReplicaAddressMap[name] != spec[name] {
			p.Action, p.Replica = ActionAdd, name
			return
		}
	}
}

// isOfEarlierRelease reports whether the process that serves a replica at an address knows no TLS. That must be
// known for certain. If it is not, for example when the replica is not running, the server at the address must prove
// that it knows the volume's key.
func isOfEarlierRelease(r *longhorn.Replica, address string) bool {
	s := r.Status
	serves := s.CurrentState == longhorn.InstanceStateRunning && s.UUID != "" && net.JoinHostPort(s.IP, strconv.Itoa(s.Port)) == address
	return serves && s.SecureUUID != s.UUID
}

// stillAsked returns the attempted replicas that the spec still lists with the same address.
func stillAsked(tried, spec map[string]string) map[string]string {
	kept := maps.Clone(tried)
	maps.DeleteFunc(kept, func(name, address string) bool { return spec[name] != address })
	return kept
}
