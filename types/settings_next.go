//go:build next

package types

// SettingOfNextRelease stands for a setting of a later release. The tests build this release a second time, with the
// tag next, and run both builds side by side: only one of them knows the setting.
const SettingOfNextRelease SettingName = "setting-of-the-next-release"

func init() {
	settingDefinitions = append(settingDefinitions, SettingDefinition{
		Name: SettingOfNextRelease, DisplayName: "Setting of the Next Release", Category: SettingCategoryGeneral,
		Type: SettingTypeInt, Default: "1", Minimum: bound(1), Effect: SettingEffectAtOnce,
		Description: "Nothing. Tests see whether a release that does not know the setting leaves it alone.",
	})
}
