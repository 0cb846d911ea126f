package types

import (
	"slices"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

// VolumeOptions are the options of a volume that every layer passes on unchanged. An option has one name and the same
// values as a parameter of a StorageClass, in REST, and in the spec of the Volume. An empty option is not given.
//
// A field is not here if a layer has a rule of its own for it. NumberOfReplicas and DataLocality depend on settings,
// the access mode on the claim, the selectors on existing tags, and 0 is a valid StaleReplicaTimeout.
//
// v1.VolumeOptions and v1.VolumeCreateOptions have the same fields in the same order, with JSON names. The compiler
// checks this, because the values are converted.
type VolumeOptions struct {
	ReplicaSoftAntiAffinity     string
	ReplicaZoneSoftAntiAffinity string
	ReplicaDiskSoftAntiAffinity string
	ReplicaAutoBalance          string
}

// VolumeOption describes one field of VolumeOptions.
type VolumeOption struct {
	Name string
	// Values are all allowed values. The first is the default: a new volume gets it if the option is not given.
	Values []string
	// DecidesPlace: the option decides where replicas may be placed. So the size of the largest possible volume depends
	// on it, and it is a parameter of GET /v1/storagecapacities.
	DecidesPlace bool

	get      func(*VolumeOptions) string
	set      func(*VolumeOptions, string)
	fromSpec func(*VolumeOptions, *longhorn.VolumeSpec)
	toSpec   func(*longhorn.VolumeSpec, *VolumeOptions)
}

// VolumeOptionTable has all fields of VolumeOptions. Error messages and comparisons name them in this order. Each is
// also an offered parameter of a StorageClass (ClassParameters).
var VolumeOptionTable = []VolumeOption{
	placing(word("replicaSoftAntiAffinity", ignoredOrSwitch,
		func(o *VolumeOptions) *string { return &o.ReplicaSoftAntiAffinity },
		func(s *longhorn.VolumeSpec) *longhorn.AntiAffinity { return &s.ReplicaSoftAntiAffinity })),
	placing(word("replicaZoneSoftAntiAffinity", ignoredOrSwitch,
		func(o *VolumeOptions) *string { return &o.ReplicaZoneSoftAntiAffinity },
		func(s *longhorn.VolumeSpec) *longhorn.AntiAffinity { return &s.ReplicaZoneSoftAntiAffinity })),
	placing(word("replicaDiskSoftAntiAffinity", ignoredOrSwitch,
		func(o *VolumeOptions) *string { return &o.ReplicaDiskSoftAntiAffinity },
		func(s *longhorn.VolumeSpec) *longhorn.AntiAffinity { return &s.ReplicaDiskSoftAntiAffinity })),
	word("replicaAutoBalance", []string{"ignored", "disabled", "least-effort", "best-effort"},
		func(o *VolumeOptions) *string { return &o.ReplicaAutoBalance },
		func(s *longhorn.VolumeSpec) *longhorn.AutoBalance { return &s.ReplicaAutoBalance }),
}

// word returns an option that has one of a few words. An option of another type needs a function like this one.
func word[T ~string](name string, values []string, field func(*VolumeOptions) *string, inSpec func(*longhorn.VolumeSpec) *T) VolumeOption {
	return VolumeOption{
		Name: name, Values: values,
		get:      func(o *VolumeOptions) string { return *field(o) },
		set:      func(o *VolumeOptions, text string) { *field(o) = text },
		fromSpec: func(o *VolumeOptions, s *longhorn.VolumeSpec) { *field(o) = string(*inSpec(s)) },
		toSpec:   func(s *longhorn.VolumeSpec, o *VolumeOptions) { *inSpec(s) = T(*field(o)) },
	}
}

func placing(o VolumeOption) VolumeOption {
	o.DecidesPlace = true
	return o
}

// FindVolumeOption returns the option with that name; false: no option has it.
func FindVolumeOption(name string) (VolumeOption, bool) {
	i := slices.IndexFunc(VolumeOptionTable, func(o VolumeOption) bool { return o.Name == name })
	if i < 0 {
		return VolumeOption{}, false
	}
	return VolumeOptionTable[i], true
}

// Get returns the option as text, as a StorageClass has it; empty: it is not given.
func (o VolumeOption) Get(from VolumeOptions) string { return o.get(&from) }

// Set sets the option. The caller must have checked the text.
func (o VolumeOption) Set(in *VolumeOptions, text string) { o.set(in, text) }

// FillVolumeOptions sets each option that is not given to its default.
func FillVolumeOptions(options *VolumeOptions) {
	for _, o := range VolumeOptionTable {
		if o.get(options) == "" {
			o.set(options, o.Values[0])
		}
	}
}

// VolumeOptionsOf returns the options in the spec of a Volume. It does not change the spec.
func VolumeOptionsOf(spec *longhorn.VolumeSpec) VolumeOptions {
	var options VolumeOptions
	for _, o := range VolumeOptionTable {
		o.fromSpec(&options, spec)
	}
	return options
}

// SetVolumeOptions writes all options into the spec of a Volume.
func SetVolumeOptions(spec *longhorn.VolumeSpec, options VolumeOptions) {
	for _, o := range VolumeOptionTable {
		o.toSpec(spec, &options)
	}
}
