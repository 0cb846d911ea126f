package api

import (
	"context"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
	"github.com/longhorn-lep/longhorn-manager/manager"
)

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
				return nil, notFound(v1.TypeEngineImage, name)
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
