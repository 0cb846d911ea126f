package uninstall

import (
	"fmt"
	"slices"
	"strings"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
)

// refusal returns the reason why nothing may be removed: another Longhorn is here, the installation is in another
// namespace, or there is data whose deletion no user has confirmed. Replicas count as data as well, because their
// volume may have been removed by force.
func (s State) refusal() string {
	for _, o := range s.Objects[definitions] {
		if strings.HasSuffix(o.Name, "."+longhorn.GroupName) && !belongsToInstallation(definitions, o, s.Namespace) {
			return fmt.Sprintf("definition %s belongs to another Longhorn", o.Name)
		}
	}
	if reason := s.misplaced(); reason != "" {
		return reason
	}
	if s.isConfirmed() {
		return ""
	}
	var names []string
	for _, v := range s.of(volumes) {
		names = append(names, s.volumeText(v.Name))
	}
	for _, r := range s.of(replicas) {
		if r.Path != "" && !slices.ContainsFunc(s.of(volumes), func(v Object) bool { return v.Name == r.volume() }) {
			names = append(names, "replica "+r.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	return fmt.Sprintf("there is data:%sTo delete it permanently, set setting %s to true "+
		"(kubectl -n %s patch lhs %[2]s --type merge -p '{\"value\":\"true\"}'); "+
		"if the settings no longer exist, give the uninstaller the argument --delete-volumes", listed(names, ". "), settings.DeletingConfirmation, s.Namespace)
}

// misplaced returns in which other namespace the installation is. Cluster-scoped objects such as the definitions
// would be deleted without a confirmation, because the volumes are not seen in the given namespace.
func (s State) misplaced() string {
	for _, k := range slices.Concat(readOrder, unknown(s.of(definitions))) {
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
	return s.Forced || slices.ContainsFunc(s.of(globalSettings), func(o Object) bool {
		return o.Name == string(settings.DeletingConfirmation) && o.Value == "true"
	})
}

// alreadyRemoved says which objects a refused run had removed before.
func alreadyRemoved(removed []string) string {
	if len(removed) == 0 {
		return "This run removed nothing; if an earlier run removed objects, apply deploy/longhorn.yaml again to restore them"
	}
	return "This run has removed " + firstNames(removed) + "; apply deploy/longhorn.yaml again to restore them"
}

// maxNames is the maximum number of names in a message.
const maxNames = 10

// listed returns names for a message: a single name followed by end, or the first of several names, one per line.
func listed(names []string, end string) string {
	if len(names) == 1 {
		return " " + names[0] + end
	}
	var b strings.Builder
	for _, name := range names[:min(len(names), maxNames)] {
		b.WriteString("\n  " + name)
	}
	if more := len(names) - maxNames; more > 0 {
		fmt.Fprintf(&b, "\n  and %d more", more)
	}
	return b.String() + "\n"
}

// firstNames returns the first of many names.
func firstNames(names []string) string {
	if more := len(names) - maxNames; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNames], ", "), more)
	}
	return strings.Join(names, ", ")
}
