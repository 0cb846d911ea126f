package api

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
	"github.com/longhorn-lep/longhorn-manager/manager"
	"github.com/longhorn-lep/longhorn-manager/settings"
)

// formerSettings are settings of early releases of Longhorn. Longhorn's clients read one of them. If the answer is
// status 500 with these words, they conclude that the release does not have the setting. They fail at any other answer.
var formerSettings = []string{"backup-target", "backup-target-credential-secret", "backupstore-poll-interval"}

func settingKind(m *manager.Manager) kind {
	return kind{
		id: v1.TypeSetting, plural: "settings", wire: v1.Setting{}, view: manager.ViewSettings,
		hints: map[string]hint{"value": {update: true, required: true}},
		list: func(context.Context) ([]v1.Object, error) {
			views, err := m.ListSettings()
			return objectsOf(views, settingOf), err
		},
		get: func(_ context.Context, id string) (v1.Object, error) {
			if slices.Contains(formerSettings, id) {
				return nil, &refusal{http.StatusInternalServerError, fmt.Sprintf("setting %s is not supported", id)}
			}
			return objectOf(settingOf)(m.Setting(id))
		},
		update: func(ctx context.Context, id string, body []byte) (v1.Object, error) {
			in, err := decodeResource[v1.SettingUpdate](body, &v1.Setting{})
			if err != nil {
				return nil, err
			}
			if in.Value == nil {
				return nil, &manager.Invalid{Field: "value", Rule: "is required; an empty value means the default"}
			}
			return objectOf(settingOf)(m.UpdateSetting(ctx, id, string(*in.Value)))
		},
	}
}

func settingOf(view manager.SettingView) *v1.Setting {
	return &v1.Setting{
		Resource:     v1.Resource{ID: view.Name},
		Name:         view.Name,
		Value:        view.Definition.PerEngineText(view.Value),
		ValueInForce: view.ValueInForce,
		Applied:      view.Applied,
		Definition:   definitionOf(view.Definition),
	}
}

func definitionOf(d settings.Definition) v1.SettingDefinition {
	wire := v1.SettingDefinition{
		DisplayName:        d.DisplayName,
		Description:        d.Description,
		Category:           d.Category,
		Type:               string(d.Type),
		Required:           true,
		ReadOnly:           d.ReadOnly,
		Default:            d.PerEngineText(d.Default),
		DataEngineSpecific: d.PerEngine,
		Options:            d.Options,
		Effect:             string(d.Effect),
	}
	for key, bound := range map[string]*int64{"minimum": d.Minimum, "maximum": d.Maximum} {
		if bound == nil {
			continue
		}
		if wire.Range == nil {
			wire.Range = map[string]int64{}
		}
		wire.Range[key] = *bound
	}
	return wire
}

func instanceManagerKind(m *manager.Manager) kind {
	return kind{
		id: v1.TypeInstanceManager, plural: "instanceManagers", wire: v1.InstanceManager{}, view: manager.ViewInstanceManagers,
		list: func(context.Context) ([]v1.Object, error) {
			views, err := m.ListInstanceManagers()
			return objectsOf(views, instanceManagerOf), err
		},
		get: func(_ context.Context, id string) (v1.Object, error) {
			return objectOf(instanceManagerOf)(m.InstanceManager(id))
		},
	}
}

func instanceManagerOf(view manager.InstanceManagerView) *v1.InstanceManager {
	im := view.Manager
	wire := &v1.InstanceManager{
		Resource:         v1.Resource{ID: im.Name},
		Name:             im.Name,
		NodeID:           im.Spec.NodeID,
		Image:            im.Spec.Image,
		CurrentState:     string(im.Status.CurrentState),
		ManagerType:      string(im.Spec.Type),
		DataEngine:       string(im.Spec.DataEngine),
		InstanceEngines:  map[string]v1.InstanceProcess{},
		InstanceReplicas: map[string]v1.InstanceProcess{},
		Instances:        map[string]v1.InstanceProcess{},
	}
	for _, e := range view.Engines {
		process := processOf(e.Name, "engine", e.Spec.InstanceSpec, e.Status.InstanceStatus)
		process.Status.Endpoint = e.Status.Endpoint
		wire.InstanceEngines[e.Name], wire.Instances[e.Name] = process, process
	}
	for _, r := range view.Replicas {
		process := processOf(r.Name, "replica", r.Spec.InstanceSpec, r.Status.InstanceStatus)
		wire.InstanceReplicas[r.Name], wire.Instances[r.Name] = process, process
	}
	return wire
}

func processOf(name, instanceType string, spec manager.InstanceSpec, status manager.InstanceStatus) v1.InstanceProcess {
	return v1.InstanceProcess{
		Spec: v1.InstanceProcessSpec{Name: name, DataEngine: string(spec.DataEngine)},
		Status: v1.InstanceProcessStatus{
			Type: instanceType, State: string(status.CurrentState), PortStart: status.Port, UUID: status.UUID,
		},
	}
}
