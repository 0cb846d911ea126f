package manager

import (
	"fmt"

	"k8s.io/apimachinery/pkg/labels"
)

// ListShareManagers returns the share managers of all shared volumes, sorted by name. Callers must not modify them.
func (m *Manager) ListShareManagers() ([]*ShareManager, error) {
	shares, err := m.deps.ShareManagers.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list share managers: %w", err)
	}
	return shares, nil
}

// ShareManager returns the share manager of one volume; callers must not modify it.
func (m *Manager) ShareManager(name string) (*ShareManager, error) {
	s, err := m.deps.ShareManagers.GetRO(name)
	if err != nil {
		return nil, storeError("shareManager", name, err)
	}
	return s, nil
}
