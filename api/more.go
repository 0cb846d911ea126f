package api

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
	"github.com/longhorn-lep/longhorn-manager/manager"
)

// absentTypes are types of Longhorn that this system lacks. Its clients still list them all.
var absentTypes = []string{
	"backingImage", "backup", "backupBackingImage", "backupTarget", "backupVolume", "orphan", "recurringJob", "snapshot", "snapshotCR",
	"supportBundle", "systemBackup", "systemRestore",
}

// absentKinds returns kinds with empty collections, in which nothing can be created.
func absentKinds() []kind {
	kinds := make([]kind, 0, len(absentTypes))
	for _, id := range absentTypes {
		kinds = append(kinds, kind{
			id: id, plural: plural(id), wire: v1.Absent{},
			list: func(context.Context) ([]v1.Object, error) { return []v1.Object{}, nil },
			get:  func(_ context.Context, name string) (v1.Object, error) { return nil, noSuch(id, name) },
		})
	}
	return kinds
}

func noSuch(id, name string) error {
	return &refusal{http.StatusNotFound, fmt.Sprintf("%s %q does not exist", id, name)}
}

// engineImageKind has one resource.
func engineImageKind(m *manager.Manager) kind {
	return kind{
		id: v1.TypeEngineImage, plural: "engineImages", wire: v1.EngineImage{}, view: manager.ViewEngineImage,
		list: func(context.Context) ([]v1.Object, error) {
			view, err := m.EngineImage()
			return objectsOf([]manager.EngineImageView{view}, engineImageOf), err
		},
		get: func(_ context.Context, name string) (v1.Object, error) {
			if name != manager.EngineImageName {
				return nil, noSuch(v1.TypeEngineImage, name)
			}
			return objectOf(engineImageOf)(m.EngineImage())
		},
	}
}

func engineImageOf(view manager.EngineImageView) *v1.EngineImage {
	wire := &v1.EngineImage{
		Resource: v1.Resource{ID: manager.EngineImageName},
		Name:     manager.EngineImageName, Image: view.Image, Default: true, State: "deployed",
		RefCount: view.Volumes, NodeDeploymentMap: make(map[string]bool, len(view.Nodes)),
	}
	ready := v1.Condition{Type: v1.EngineImageReady, Status: "True", Message: "every node has the data plane"}
	wire.Conditions = []v1.Condition{ready}
	for _, node := range view.Nodes {
		wire.NodeDeploymentMap[node] = true
	}
	return wire
}

// tagKind is a collection of the tags that are in use.
func tagKind(plural string, list func() ([]string, error), tagType string) kind {
	tagOf := func(tag string) *v1.Tag {
		return &v1.Tag{Resource: v1.Resource{ID: tag}, Name: tag, TagType: tagType}
	}
	return kind{
		id: v1.TypeTag, plural: plural, wire: v1.Tag{}, isView: true, view: manager.ViewTags,
		list: func(context.Context) ([]v1.Object, error) {
			tags, err := list()
			return objectsOf(tags, tagOf), err
		},
		get: func(_ context.Context, name string) (v1.Object, error) {
			tags, err := list()
			if err != nil {
				return nil, err
			}
			if !slices.Contains(tags, name) {
				return nil, noSuch(v1.TypeTag, name)
			}
			return tagOf(name), nil
		},
	}
}
