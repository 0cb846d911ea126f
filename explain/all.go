package explain

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// All explains the whole cluster, the worst findings first.
func All(s *Snapshot) []Finding {
	found := noNodes(s)
	for _, n := range s.Nodes {
		found = append(found, ofNode(s, n)...)
		found = append(found, ofInstanceManager(s, n)...)
		for _, disk := range slices.Sorted(maps.Keys(n.Spec.Disks)) {
			found = append(found, ofDisk(s, n, disk)...)
		}
	}
	for _, v := range s.Volumes {
		found = append(found, ofVolume(s, v)...)
	}
	if s.sees(ResourceVolumes) {
		found = append(found, orphans(s, slices.DeleteFunc(slices.Clone(s.Replicas), func(r *longhorn.Replica) bool { return named(s.Volumes, r.Spec.VolumeName) != nil }))...)
	}
	for _, setting := range s.Settings {
		found = append(found, ofSetting(s, setting)...)
	}
	for _, pv := range s.PersistentVolumes {
		found = append(found, ofPV(s, pv)...)
	}
	for _, c := range s.Claims {
		found = append(found, ofClaim(s, c)...)
	}
	for _, c := range s.Claims {
		found = append(found, slices.DeleteFunc(ofUsers(s, c, s.pvOf(c)), func(f Finding) bool { return f.Severity == Info })...)
	}
	return sorted(s, found)
}

// noNodes reports that an installation has no node: none of its daemons has ever run.
func noNodes(s *Snapshot) []Finding {
	if len(s.Nodes) > 0 || !s.sees(ResourceNodes) {
		return nil
	}
	return []Finding{{
		Object{Kind: KindInstallation, Name: s.Namespace},
		Broken, "NoNodes",
		"the installation in namespace " + s.Namespace + " has no nodes: no pod of longhorn-manager has started", nil,
		s.place().steps([]Step{{"See why the pods do not start", "kubectl -n {ns} get pods -l app=longhorn-manager; kubectl -n {ns} describe daemonset longhorn-manager"}}),
	}}
}

// ofSetting explains a setting that is not in force, or that leaves the REST API open. If no daemon has written the
// condition yet, it checks the value against the registry.
func ofSetting(s *Snapshot, setting *longhorn.Setting) []Finding {
	c := types.FindCondition(setting.Status.Conditions, types.ConditionValid)
	name := settings.Name(setting.Name)
	err := settings.Check(name, setting.Value)
	if _, known := settings.DefinitionOf(name); known && err != nil && c.Status == longhorn.ConditionUnknown {
		c = longhorn.Condition{Type: types.ConditionValid, Status: longhorn.ConditionFalse, Reason: types.ReasonInvalidValue, Message: err.Error()}
	}
	return ofConditions(Object{Kind: KindSetting, Name: setting.Name}, s.place(), []longhorn.Condition{
		c, types.FindCondition(setting.Status.Conditions, types.ConditionTrustedNetwork),
	})
}

// names returns the names of objects, sorted.
func names[T metav1.Object](list []T) []string {
	var all []string
	for _, o := range list {
		all = append(all, o.GetName())
	}
	slices.Sort(all)
	return all
}

// maxNames is the maximum number of existing objects that an error lists.
const maxNames = 20

// notThere returns the error that no object with this name exists. The error suggests the name that the user may have
// meant, or lists the existing names. others are command lines that explain objects of other kinds with this name.
func notThere(s *Snapshot, kind Kind, name, plural string, have []string, others ...string) error {
	if !s.sees(plural) {
		return fmt.Errorf("%s %q: your account may not read %s", kind, name, plural)
	}
	text := fmt.Sprintf("%s %q does not exist", kind, name)
	near := meant(name, have)
	switch {
	case len(others) > 0:
		return fmt.Errorf("%s; did you mean: %s", text, strings.Join(others, ", or: "))
	case near != "":
		return fmt.Errorf("%s; did you mean %q?", text, near)
	}
	have = slices.Clone(have)
	for i, name := range have {
		if kind == KindVolume {
			have[i] = s.volumeText(name)
		}
	}
	if len(have) > maxNames {
		have = append(have[:maxNames], "...")
	}
	if len(have) > 0 {
		text += "; there are " + strings.Join(have, ", ")
	}
	return fmt.Errorf("%s", text)
}

// maxMeant is the maximum number of claims of one name that an error suggests.
const maxMeant = 5

// ClaimsNamed returns the command lines that explain all claims with a name, in any namespace that was read.
func ClaimsNamed(s *Snapshot, name string) []string {
	var lines []string
	for _, c := range s.Claims {
		if c.Name == name {
			lines = append(lines, "explain claim "+c.Namespace+"/"+c.Name)
		}
	}
	slices.Sort(lines)
	return lines[:min(len(lines), maxMeant)]
}

// volumesNamed returns the command lines that explain what a user may have mistaken for the name of a volume: the
// name of a claim or of a PersistentVolume.
func volumesNamed(s *Snapshot, name string) []string {
	if pv := named(s.PersistentVolumes, name); pv != nil && isOurs(pv) {
		return []string{"explain pv " + name}
	}
	return ClaimsNamed(s, name)
}
