// Package settings holds the registry of the global settings: their names, types, rules and defaults, and how their
// text is parsed. REST and validation use it. The admission policy, the chart's schema and docs/SETTINGS.md are
// generated from it.
//
//	registry.go      one entry for each setting
//	settings.go      what an entry says, and the checks that follow from it
//	defaults.go      default values that a ConfigMap sets
//	podsettings.go   the settings that determine how the product's own pods are created
//
// A rule that also applies to something other than a setting is in package types: the path of a disk, the clients of a
// share, tolerations.
//
// It must not know clients, informers, I/O or the wall clock, nor who reads which setting.
package settings
