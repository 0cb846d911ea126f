package uninstall

import (
	"fmt"
	"slices"
	"strings"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// refusal is why nothing may be removed: another Longhorn is here, we are installed in another
// namespace, or there is data that nobody gave up. Replicas count as well: their volume may have
// been removed by force.
func (s State) refusal() string {
	for _, o := range s.Objects[definitions] {
		if strings.HasSuffix(o.Name, "."+longhorn.GroupName) && !isOurs(definitions, o, s.Namespace) {
			return fmt.Sprintf("definition %s belongs to another Longhorn", o.Name)
		}
	}
	if why := s.misplaced(); why != "" {
		return why
	}
	if s.isConfirmed() {
		return ""
	}
	var names []string
	for _, v := range s.of(volumes) {
		names = append(names, "volume "+v.Name)
	}
	for _, r := range s.of(replicas) {
		if r.Path != "" && !slices.Contains(names, "volume "+r.volume()) {
			names = append(names, "replica "+r.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	return fmt.Sprintf("there is data:%sTo delete it for ever, set setting %s to true, "+
		"or, where the settings are gone, give the uninstaller the argument --delete-volumes", listed(names, ". "), types.SettingDeletingConfirmation)
}

// misplaced says where else the installation is. What is not of a namespace, such as the
// definitions, would be taken from it unconfirmed: its volumes are not seen in the given namespace.
func (s State) misplaced() string {
	for _, k := range slices.Concat(all, unknown(s.of(definitions))) {
		for _, o := range s.Elsewhere[k] {
			if isInstallation(k, o) {
				return fmt.Sprintf("namespace %s is given, but %s %s is in namespace %s. "+
					"Give the uninstaller the namespace of the installation: --namespace=%s", s.Namespace, k.Resource, o.Name, o.Namespace, o.Namespace)
			}
		}
	}
	return ""
}

func (s State) isConfirmed() bool {
	return s.Forced || slices.ContainsFunc(s.of(settings), func(o Object) bool {
		return o.Name == string(types.SettingDeletingConfirmation) && o.Value == "true"
	})
}

// aftermath is what a refused run says of what it had removed before.
func aftermath(removed []string) string {
	if len(removed) == 0 {
		return "this run removed nothing; if an earlier one did, apply deploy/longhorn.yaml again to have it back"
	}
	return "this run had removed " + some(removed) + "; apply deploy/longhorn.yaml again to have it back"
}

// most is how many names a message has.
const most = 10

// listed are names in a message: one name with end behind it, or the first of several, one a line.
func listed(names []string, end string) string {
	if len(names) == 1 {
		return " " + names[0] + end
	}
	var b strings.Builder
	for _, name := range names[:min(len(names), most)] {
		b.WriteString("\n  " + name)
	}
	if more := len(names) - most; more > 0 {
		fmt.Fprintf(&b, "\n  and %d more", more)
	}
	return b.String() + "\n"
}

// some are the first of many names.
func some(names []string) string {
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}
