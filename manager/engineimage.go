package manager

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
)

// EngineImageName is the name of the one engine image.
const EngineImageName = "ei-longhorn"

// EngineImageView is the data plane of all nodes.
type EngineImageView struct {
	// Image is empty while no node has an instance manager.
	Image string
	// Nodes has the names of all nodes, sorted.
	Nodes []string
	// Volumes is the number of volumes.
	Volumes int
}

// EngineImage returns the only engine image.
func (m *Manager) EngineImage() (EngineImageView, error) {
	image, err := m.image()
	if err != nil {
		return EngineImageView{}, err
	}
	nodes, err := m.deps.Nodes.List(labels.Everything())
	if err != nil {
		return EngineImageView{}, fmt.Errorf("list nodes: %w", err)
	}
	volumes, err := m.deps.Volumes.List(labels.Everything())
	if err != nil {
		return EngineImageView{}, fmt.Errorf("list volumes: %w", err)
	}
	view := EngineImageView{Image: image, Volumes: len(volumes)}
	for _, n := range nodes {
		view.Nodes = append(view.Nodes, n.Name)
	}
	return view, nil
}

// image returns the image of the instance managers. While one release replaces another and they differ, it is the image
// of the first by name.
func (m *Manager) image() (string, error) {
	managers, err := m.deps.InstanceManagers.List(labels.Everything())
	if err != nil {
		return "", fmt.Errorf("list instance managers: %w", err)
	}
	for _, im := range managers {
		if im.Spec.Image != "" {
			return im.Spec.Image, nil
		}
	}
	return "", nil
}

// NodeTags returns the tags that nodes have, sorted, each once.
func (m *Manager) NodeTags() ([]string, error) {
	return m.tags(func(n *Node) []string { return n.Spec.Tags })
}

// DiskTags returns the tags that disks have, sorted, each once.
func (m *Manager) DiskTags() ([]string, error) {
	return m.tags(func(n *Node) []string {
		var tags []string
		for _, disk := range n.Spec.Disks {
			tags = append(tags, disk.Tags...)
		}
		return tags
	})
}

func (m *Manager) tags(of func(*Node) []string) ([]string, error) {
	nodes, err := m.deps.Nodes.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	var tags []string
	for _, n := range nodes {
		tags = append(tags, of(n)...)
	}
	slices.Sort(tags)
	return slices.Compact(tags), nil
}
