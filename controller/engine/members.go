package engine

import (
	"maps"
	"net"
	"slices"
	"strconv"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

// planMembers makes a running engine follow spec.replicaAddressMap, one replica at a time:
// it removes one that the spec no longer asks for, and adds one that it newly asks for.
//
//	spec        status.currentReplicaAddressMap   mode      what is done
//	asked for   as asked for                      any       nothing: it was tried, and the mode says how that went
//	asked for   lacks it, or has another address  RW, WO    nothing
//	asked for   lacks it, or has another address  ERR, none added, unless another one is being rebuilt
//	not         -                                 RW        removed, if another member is asked for
//	not         -                                 WO        its rebuild is ended
//
// A replica is tried once for each time that the spec asks for it. For another try, take
// it out of the spec, wait until it has left the status, and ask again.
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

// isOfEarlierRelease tells whether the process that serves a replica at an address knows no TLS. That must be known for certain: where
// nothing is said, such as of a replica that is not running, whoever answers at the address must prove that it knows the volume's key.
func isOfEarlierRelease(r *longhorn.Replica, address string) bool {
	s := r.Status
	serves := s.CurrentState == longhorn.InstanceStateRunning && s.UUID != "" && net.JoinHostPort(s.IP, strconv.Itoa(s.Port)) == address
	return serves && s.SecureUUID != s.UUID
}

// stillAsked is what was tried and is still asked for, at the same address.
func stillAsked(tried, spec map[string]string) map[string]string {
	kept := maps.Clone(tried)
	maps.DeleteFunc(kept, func(name, address string) bool { return spec[name] != address })
	return kept
}
