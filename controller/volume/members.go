package volume

import (
	"cmp"
	"maps"
	"slices"
	"time"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

const (
	// A copy that failed is rebuilt again firstBackoff × 2^n after its failure, n being
	// how often it failed in a row, at most maxBackoff. The first time it is rebuilt after
	// settle: that is how long a process that died takes to be seen dead.
	firstBackoff = 10 * time.Second
	maxBackoff   = 5 * time.Minute
	// A copy whose process was replaced since, as by a restart of its node, may well be sound
	// now. It waits all the same: a rebuild may be what ends the process.
	restartBackoff = 30 * time.Second
	settle         = 3 * time.Second
	// A rebuilt copy that fails again sooner than steadyAfter has failed in a row.
	steadyAfter = 10 * time.Minute
)

// tend looks after the copies of a volume that is served: it notes what became of each,
// has lost ones rebuilt, made anew, or given up. It is called only with known copies.
func tend(in Input, c copies, p *Plan) {
	for _, v := range c.list {
		note(in, v, p)
		if v.DeletionTimestamp == nil {
			p.want(v.Replica, longhorn.DesireStateRunning)
		}
	}
	if asked := ask(in, c, p); !maps.Equal(asked, in.Engine.Spec.ReplicaAddressMap) {
		p.UpdateEngine = in.Engine.DeepCopy()
		p.UpdateEngine.Spec.ReplicaAddressMap = asked
	}
	replenish(in, c, p)
	cleanUp(in, c, p)
}

// note writes down when a copy became a member, and when it ceased to be one.
//
//	copy                                          failedAt  healthyAt  retry count
//	member, serves                                ""        first seen as it was
//	was a member                                  now                  +1 if it had just been rebuilt, else 0
//	its rebuild failed                            now       ""         +1
//	never was a member, and is down               now
//
// Of a member, and of one whose rebuild failed, the process that serves it is noted too: the
// delay of a copy that was restarted since is shorter (rebuildDelay).
//
// The count stays when a rebuild succeeds, and goes only when the copy has lasted: a disk
// that is too slow to be a member for long is not rebuilt for ever.
func note(in Input, v copyView, p *Plan) {
	was := v.Spec
	now := types.Timestamp(in.Now)
	switch {
	case v.isHealthy():
		if was.FailedAt != "" || was.HealthyAt == "" {
			s := p.edit(v.Replica)
			s.FailedAt, s.HealthyAt, s.LastHealthyAt = "", now, now
		}
		if was.ServedUUID != v.Status.UUID {
			p.edit(v.Replica).ServedUUID = v.Status.UUID
		}
	case v.member || v.DeletionTimestamp != nil || v.isUnderway(in):
	case was.HealthyAt != "" && was.FailedAt == "":
		s := p.edit(v.Replica)
		s.FailedAt, s.LastFailedAt = now, now
		s.RebuildRetryCount = 0
		if was.LastFailedAt != "" && types.Until(was.HealthyAt, steadyAfter, in.Now) > 0 {
			s.RebuildRetryCount = was.RebuildRetryCount + 1
		}
	case v.asked && v.tried && v.mode == longhorn.ReplicaModeERR && rebuildDelay(&was, v.Status.UUID, in.Now) == 0:
		// A rebuild begins when the delay is over: within the delay this one was counted.
		s := p.edit(v.Replica)
		s.FailedAt, s.LastFailedAt, s.ServedUUID, s.HealthyAt = now, now, v.Status.UUID, ""
		s.RebuildRetryCount++
	case was.FailedAt == "" && isDown(in, v.Replica):
		s := p.edit(v.Replica)
		s.FailedAt, s.LastFailedAt = now, now
	}
}

// ask returns the replicas that the engine shall have: all members but one that leaves,
// the one that is being rebuilt, or else the next to be.
func ask(in Input, c copies, p *Plan) map[string]string {
	asked := map[string]string{}
	leaving := leaves(in, c)
	rebuilding := slices.ContainsFunc(c.list, func(v copyView) bool { return v.mode == longhorn.ReplicaModeWO && v.member })
	for name, at := range in.Engine.Spec.ReplicaAddressMap {
		if slices.Contains(in.Engine.Status.Epoch.Members, name) && name != leaving {
			asked[name] = at // also one whose object is not to be seen: that proves nothing
		}
	}
	wanted := c.healthy() < in.Volume.Spec.NumberOfReplicas
	for _, v := range c.list {
		switch {
		case v.member && v.Name != leaving && asked[v.Name] == "" && v.Status.IP != "":
			asked[v.Name] = address(v.Replica)
		case v.isUnderway(in) && v.DeletionTimestamp == nil && wanted:
			asked[v.Name] = in.Engine.Spec.ReplicaAddressMap[v.Name]
			rebuilding = true
		}
	}
	if rebuilding || !wanted {
		return asked
	}
	if next := nextRebuild(in, c, p); next != nil {
		p.edit(next).HealthyAt = ""
		asked[next.Name] = address(next)
	}
	return asked
}

// nextRebuild picks the copy to be rebuilt: one that runs, that the engine has forgotten
// the last try of, and whose time has come; the one that failed least first.
func nextRebuild(in Input, c copies, p *Plan) *longhorn.Replica {
	var best *longhorn.Replica
	for _, v := range c.list {
		if v.member || v.asked || v.DeletionTimestamp != nil || !serves(in, v.Replica) {
			continue
		}
		if v.tried {
			continue // the engine's next status brings us back
		}
		if left := rebuildDelay(p.spec(v.Replica), v.Status.UUID, in.Now); left > 0 {
			p.again(left)
			continue
		}
		if best == nil || v.Spec.RebuildRetryCount < best.Spec.RebuildRetryCount {
			best = v.Replica
		}
	}
	return best
}

// rebuildDelay is how long a copy that is served by a process has to wait until it is rebuilt,
// from the stored time of its failure.
func rebuildDelay(s *longhorn.ReplicaSpec, process string, now time.Time) time.Duration {
	delay, most := settle, maxBackoff
	if s.ServedUUID != "" && process != s.ServedUUID {
		most = restartBackoff
	}
	if n := s.RebuildRetryCount; n > 0 {
		delay = min(firstBackoff<<min(n, 8), most)
	}
	return types.Until(s.FailedAt, delay, now)
}

// leaves picks the member that the engine shall do without; "" when none may go. A copy
// whose object is being deleted, or whose node was removed, goes as soon as another one
// serves; a surplus one goes
// when the others are as many as asked for, one at a time.
func leaves(in Input, c copies) string {
	healthy := c.healthy()
	var surplus []copyView
	for _, v := range c.list {
		switch {
		case !v.member:
		case (v.DeletionTimestamp != nil || v.gone) && healthy > 0:
			return v.Name
		case v.isHealthy():
			surplus = append(surplus, v)
		}
	}
	if healthy <= in.Volume.Spec.NumberOfReplicas || healthy < 2 {
		return ""
	}
	perNode := map[string]int{}
	for _, v := range surplus {
		perNode[v.Spec.NodeID]++
	}
	// The one that is on its way out already, then one of several on a node, then one away
	// from the engine, then the last by name.
	return slices.MinFunc(surplus, func(a, b copyView) int {
		return cmp.Or(
			first(!a.asked, !b.asked),
			-cmp.Compare(perNode[a.Spec.NodeID], perNode[b.Spec.NodeID]),
			first(a.Spec.NodeID != in.Engine.Spec.NodeID, b.Spec.NodeID != in.Engine.Spec.NodeID),
			-cmp.Compare(a.Name, b.Name))
	}).Name
}

// first orders what is true before what is not.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}
