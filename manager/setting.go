package manager

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
)

// SettingView is a setting with its definition.
type SettingView struct {
	Name string
	// Value is the value that was set, or the default.
	Value string
	// ValueInForce is the effective value.
	ValueInForce string
	// Applied is false while the value is refused or has no effect in this release, or while no controller has checked
	// it yet.
	Applied    bool
	Definition settings.Definition
}

// ListSettings returns all settings, sorted by name, including those that have no object.
func (m *Manager) ListSettings() ([]SettingView, error) {
	var views []SettingView
	for _, name := range settings.All() {
		view, err := m.Setting(string(name))
		if err != nil {
			return nil, err
		}
		views = append(views, view)
	}
	return views, nil
}

// Setting returns one setting.
func (m *Manager) Setting(name string) (SettingView, error) {
	definition, ok := settings.DefinitionOf(settings.Name(name))
	if !ok {
		return SettingView{}, notFound("setting", name)
	}
	if definition.ReadOnly {
		value, err := m.readOnlyValue(definition.Name)
		return SettingView{Name: name, Value: value, ValueInForce: value, Applied: true, Definition: definition}, err
	}
	s, err := m.deps.Settings.GetRO(name)
	if apierrors.IsNotFound(err) {
		return SettingView{
			Name: name, Value: definition.Default, ValueInForce: definition.Default,
			Applied: definition.Effect != settings.EffectNone, Definition: definition,
		}, nil
	}
	if err != nil {
		return SettingView{}, fmt.Errorf("get setting %s: %w", name, err)
	}
	return settingView(s, definition), nil
}

// readOnlyValue returns the value of a setting that cannot be set.
func (m *Manager) readOnlyValue(name settings.Name) (string, error) {
	switch name {
	case settings.CurrentVersion:
		return m.deps.Version, nil
	case settings.DefaultEngineImage, settings.DefaultInstanceManagerImage:
		view, err := m.EngineImage()
		return view.Image, err
	case settings.AutoSalvage, settings.DisableRevisionCounter, settings.V1DataEngine, settings.V2DataEngine:
		definition, _ := settings.DefinitionOf(name)
		return definition.Default, nil
	}
	panic("BUG: no value for the read-only setting " + string(name))
}

// ManagerURL returns the URL with which links start; "": links start with the address of each request.
func (m *Manager) ManagerURL() string {
	s, err := m.deps.Settings.GetRO(string(settings.ManagerURL))
	if err != nil {
		return ""
	}
	return settings.ValueInForce(s)
}

// UpdateSetting sets the value of a setting; an empty value means the default.
func (m *Manager) UpdateSetting(ctx context.Context, name, value string) (SettingView, error) {
	definition, ok := settings.DefinitionOf(settings.Name(name))
	if !ok {
		return SettingView{}, notFound("setting", name)
	}
	if definition.ReadOnly && definition.Default != "" && settings.Check(definition.Name, value) == nil {
		return m.Setting(name) // the setting has this value
	}
	if definition.ReadOnly {
		return SettingView{}, &Invalid{Field: "value", Rule: fmt.Sprintf("setting %s with invalid value %q: it cannot be set: the setting is read-only", name, value)}
	}
	if err := settings.Check(settings.Name(name), value); err != nil {
		return SettingView{}, &Invalid{Field: "value", Rule: err.Error()}
	}
	if err := m.checkPriorityClass(ctx, definition, value); err != nil {
		return SettingView{}, err
	}
	var stored *longhorn.Setting
	err := m.retry(ctx, func() error {
		s, err := m.deps.Settings.Live(ctx, name)
		if apierrors.IsNotFound(err) {
			stored, err = m.deps.Settings.Create(ctx, &longhorn.Setting{
				ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: m.deps.Namespace}, Value: value,
			})
			return err
		}
		if err != nil {
			return err
		}
		if s.Value == value {
			stored = s
			return nil
		}
		s.Value = value
		stored, err = m.deps.Settings.Update(ctx, s)
		return err
	})
	if err != nil {
		return SettingView{}, storeError("setting", name, err)
	}
	m.deps.Log.WithField("setting", name).Info("setting changed on request")
	m.awaitCache(ctx, func() bool {
		cached, err := m.deps.Settings.GetRO(name)
		return err == nil && cached.Value == stored.Value || err != nil && !apierrors.IsNotFound(err)
	})
	return settingView(stored, definition), nil
}

// checkPriorityClass refuses the name of a PriorityClass that does not exist.
func (m *Manager) checkPriorityClass(ctx context.Context, d settings.Definition, value string) error {
	if d.Name != settings.PriorityClass || value == "" {
		return nil
	}
	_, err := m.deps.PriorityClasses.Live(ctx, value)
	if apierrors.IsNotFound(err) {
		return &Invalid{Field: "value", Rule: fmt.Sprintf("setting %s with invalid value %q: failed to get priority class %s: it does not exist", d.Name, value, value)}
	}
	// Manifests of an earlier release do not grant this right; the setting's status reports later whether the class
	// exists.
	if err != nil && !apierrors.IsForbidden(err) {
		return fmt.Errorf("read PriorityClass %s: %w", value, err)
	}
	return nil
}

func settingView(s *longhorn.Setting, definition settings.Definition) SettingView {
	view := SettingView{
		Name: s.Name, Value: s.Value, ValueInForce: settings.ValueInForce(s), Applied: s.Status.Applied, Definition: definition,
	}
	if view.Value == "" {
		view.Value = definition.Default
	}
	if settings.IsPodSetting(definition.Name) && s.Status.ValueInForce != view.ValueInForce {
		view.Applied = false // no controller has checked yet whether pods have another value
	}
	return view
}
