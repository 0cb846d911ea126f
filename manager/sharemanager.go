package manager

import (
	"fmt"

	"k8s.io/apimachinery/pkg/labels"
)

// ListShareManagers returns the share managers of all shared volumes, sorted by name. None of them may be modified.
func (m *Manager) ListShareManagers() ([]*ShareManager, error) {
	shares, err := m.deps.ShareManagers.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list share managers: %w", err)
	}
	return shares, nil
}

// ShareManager returns that of one volume, which must not be modified.
func (m *Manager) ShareManager(name string) (*ShareManager, error) {
	s, err := m.deps.ShareManagers.GetRO(name)
	if err != nil {
		return nil, storeError("shareManager", name, err)
	}
	return s, nil
}
