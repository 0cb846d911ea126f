package manager

import (
	"fmt"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

// InstanceManagerView is the data plane of a node with its engines and replicas. Callers must not modify it.
type InstanceManagerView struct {
	Manager *longhorn.InstanceManager
	// Engines and Replicas are the instances that it runs or has yet to stop, sorted by name.
	Engines  []*Engine
	Replicas []*Replica
}

// ListInstanceManagers returns all instance managers, sorted by name.
func (m *Manager) ListInstanceManagers() ([]InstanceManagerView, error) {
	managers, err := m.deps.InstanceManagers.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list instance managers: %w", err)
	}
	views := make([]InstanceManagerView, 0, len(managers))
	for _, im := range managers {
		view, err := m.instanceManagerView(im)
		if err != nil {
			return nil, err
		}
		views = append(views, view)
	}
	return views, nil
}

// InstanceManager returns one instance manager.
func (m *Manager) InstanceManager(name string) (InstanceManagerView, error) {
	im, err := m.deps.InstanceManagers.GetRO(name)
	if err != nil {
		return InstanceManagerView{}, storeError("instanceManager", name, err)
	}
	return m.instanceManagerView(im)
}

func (m *Manager) instanceManagerView(im *longhorn.InstanceManager) (InstanceManagerView, error) {
	view := InstanceManagerView{Manager: im}
	engines, err := m.deps.Engines.ByIndex(datastore.IndexNode, im.Spec.NodeID)
	if err != nil {
		return view, fmt.Errorf("list engines of node %s: %w", im.Spec.NodeID, err)
	}
	replicas, err := m.deps.Replicas.ByIndex(datastore.IndexNode, im.Spec.NodeID)
	if err != nil {
		return view, fmt.Errorf("list replicas of node %s: %w", im.Spec.NodeID, err)
	}
	for _, e := range engines {
		if isHosted(e.Status.InstanceStatus, im.Name) {
			view.Engines = append(view.Engines, e)
		}
	}
	for _, r := range replicas {
		if isHosted(r.Status.InstanceStatus, im.Name) {
			view.Replicas = append(view.Replicas, r)
		}
	}
	return view, nil
}

func isHosted(s InstanceStatus, instanceManager string) bool {
	return s.InstanceManagerName == instanceManager &&
		s.CurrentState != "" && s.CurrentState != longhorn.InstanceStateStopped
}
