package manager

import (
	"fmt"

	"github.com/longhorn-lep/longhorn-manager/datastore"
)

// View names one of the lists of this package.
type View string

// The views.
const (
	ViewVolumes           View = "volumes"
	ViewVolumeAttachments View = "volume attachments"
	ViewNodes             View = "nodes"
	ViewSettings          View = "settings"
	ViewInstanceManagers  View = "instance managers"
	ViewShareManagers     View = "share managers"
	ViewSnapshots         View = "snapshots"
	ViewEngineImage       View = "engine image"
	ViewTags              View = "tags"
	ViewEvents            View = "events"
)

// madeOf has the kinds that each view reads.
var madeOf = map[View][]datastore.Kind{
	ViewVolumes:           {datastore.Volumes, datastore.VolumeAttachments, datastore.Engines, datastore.Replicas, datastore.InstanceManagers, datastore.Snapshots},
	ViewVolumeAttachments: {datastore.VolumeAttachments},
	ViewNodes:             {datastore.Nodes, datastore.Pods},
	ViewSettings:          {datastore.Settings},
	ViewInstanceManagers:  {datastore.InstanceManagers, datastore.Engines, datastore.Replicas},
	ViewShareManagers:     {datastore.ShareManagers},
	ViewSnapshots:         {datastore.Snapshots},
	ViewEngineImage:       {datastore.InstanceManagers, datastore.Nodes, datastore.Volumes},
	ViewTags:              {datastore.Nodes},
}

// ChangeSource reports changes of caches; see datastore.Datastore.OnChange.
type ChangeSource interface {
	OnChange(changed func(), kinds ...datastore.Kind) (stop func(), err error)
}

// OnChange calls changed whenever a view may have changed, until stop is called. It may call too often, but never
// misses a change. If there are objects, it calls at least once soon after OnChange. The calls come from other
// goroutines and must return immediately. Pods that use volumes are not watched: for a volume, only Longhorn's objects
// and its PersistentVolume are.
func (m *Manager) OnChange(of View, changed func()) (stop func(), err error) {
	if of == ViewEvents {
		return m.deps.Events.OnChange(changed)
	}
	kinds, ok := madeOf[of]
	if !ok {
		return nil, fmt.Errorf("BUG: no view %q", of)
	}
	stopObjects, err := m.deps.Changes.OnChange(changed, kinds...)
	if err != nil || of != ViewVolumes {
		return stopObjects, err
	}
	stopClaims, err := m.deps.Claims.OnChange(changed)
	if err != nil {
		stopObjects()
		return nil, err
	}
	return func() { stopObjects(); stopClaims() }, nil
}
