package app

import (
	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/client"
)

// stateDiff has the differences between two consecutive states of the instance manager. A rebuild changes the state of
// one engine every second. Then only this engine must be synced: a node may have a thousand engines.
type stateDiff struct {
	all      bool     // anything may have changed: the process, its disks, every engine and replica
	engines  []string // that changed, appeared or disappeared
	replicas []string // the same
	// phases: the phase of a replica changed, or a replica appeared or disappeared. Engines depend on the phases of
	// replicas, including replicas with which they have not been started yet.
	phases bool
	// hosts: an engine or a replica appeared or disappeared.
	hosts bool
}

// diffOf translates the changes that the watch reports.
func diffOf(c client.Change) stateDiff {
	d := stateDiff{all: c.All}
	for _, e := range c.Engines {
		d.engines = append(d.engines, e.Name)
		d.hosts = d.hosts || e.Before == nil || e.Now == nil
	}
	for _, r := range c.Replicas {
		d.replicas = append(d.replicas, r.Name)
		d.phases = d.phases || r.Before.GetPhase() != r.Now.GetPhase()
		d.hosts = d.hosts || r.Before == nil || r.Now == nil
	}
	return d
}
