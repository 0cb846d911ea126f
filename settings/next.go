//go:build next

package settings

// OfNextRelease stands for a setting of a later release. The tests build this release a second time, with the
// tag next, and run both builds side by side: only one of them knows the setting.
const OfNextRelease Name = "setting-of-the-next-release"

func init() {
	settingDefinitions = append(settingDefinitions, Definition{
		Name: OfNextRelease, DisplayName: "Setting of the Next Release", Category: CategoryGeneral,
		Type: TypeInt, Default: "1", Minimum: bound(1), Effect: EffectAtOnce,
		Description: "None. Tests check that a release that does not know the setting does not change it.",
	})
}
