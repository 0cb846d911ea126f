package explain

import (
	"fmt"

	storagev1 "k8s.io/api/storage/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// classParameters has the settings that a parameter of a StorageClass overrides for the volumes of the class.
var classParameters = map[settings.Name]string{
	settings.DefaultReplicaCount:         "numberOfReplicas",
	settings.DefaultDataLocality:         "dataLocality",
	settings.ReplicaSoftAntiAffinity:     "replicaSoftAntiAffinity",
	settings.ReplicaZoneSoftAntiAffinity: "replicaZoneSoftAntiAffinity",
	settings.ReplicaDiskSoftAntiAffinity: "replicaDiskSoftAntiAffinity",
	settings.ReplicaAutoBalance:          "replicaAutoBalance",
}

// Setting explains a setting: its problems, the value in force, the objects on which it acts, and the StorageClasses
// that override it. It returns an error if the setting does not exist.
func Setting(s *Snapshot, name string) ([]Finding, error) {
	if setting := named(s.Settings, name); setting != nil {
		return sorted(s, append(ofSetting(s, setting), inForce(s, setting)...)), nil
	}
	return nil, notThere(s, KindSetting, name, ResourceSettings, names(s.Settings))
}

// inForce describes the value in force of a setting that this release knows. That is no problem, so All does not list
// it.
func inForce(s *Snapshot, setting *longhorn.Setting) []Finding {
	d, known := settings.DefinitionOf(settings.Name(setting.Name))
	if !known {
		return nil
	}
	value := settings.ValueInForce(setting)
	what := fmt.Sprintf("setting %s has the value %q", d.Name, value)
	switch {
	case setting.Value == "":
		what += ", its default"
	case settings.Check(d.Name, setting.Value) != nil:
		what = fmt.Sprintf("setting %s has the invalid value %q, so %q is in force", d.Name, setting.Value, value)
	}
	switch d.Effect {
	case settings.EffectNone:
		what += "; it has no effect yet in this release"
	case settings.EffectTold:
		what += "; it is read-only and shows a fact"
	default:
		what += "; it acts " + string(d.Effect)
	}
	c := types.FindCondition(setting.Status.Conditions, types.ConditionValid)
	f := Finding{Object: Object{Kind: KindSetting, Name: setting.Name}, Severity: Info, Reason: "ValueInForce", What: what}
	if isWell(c) {
		f.Why = nonempty(c.Message)
	}
	p := s.place("setting", setting.Name)
	f.Next = []Step{{"No action needed", "kubectl -n {ns} describe lhs {setting}"}}
	if classes := overriding(s, d.Name); len(classes) > 0 {
		parameter := classParameters[d.Name]
		for _, class := range classes {
			f.Why = append(f.Why, fmt.Sprintf("StorageClass %s sets %s to %q, so the setting does not apply to volumes of this class", class.Name, parameter, class.Parameters[parameter]))
		}
		p["class"] = classes[0].Name
		f.Next = []Step{
			{"If the setting must apply to new volumes of a class, create the class again without " + parameter + " (docs/SETTINGS.md, section The StorageClass)", "kubectl get storageclass {class} -o yaml"},
			{"To change a volume that exists, change its spec." + parameter, "kubectl -n {ns} edit lhv VOLUME"},
		}
	}
	f.Next = p.steps(f.Next)
	return []Finding{f}
}

// overriding returns the StorageClasses of this driver whose volumes do not follow a setting.
func overriding(s *Snapshot, name settings.Name) []*storagev1.StorageClass {
	var classes []*storagev1.StorageClass
	for _, class := range s.Classes {
		value := class.Parameters[classParameters[name]]
		if class.Provisioner == types.DriverName && value != "" && value != "ignored" {
			classes = append(classes, class)
		}
	}
	return classes
}
