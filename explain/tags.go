package explain

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/scheduler"
)

// tagsOf describes the tags that a volume requests.
func tagsOf(spec longhorn.VolumeSpec) string {
	var parts []string
	if len(spec.NodeSelector) > 0 {
		parts = append(parts, "nodes with the tags ["+strings.Join(spec.NodeSelector, ", ")+"]")
	}
	if len(spec.DiskSelector) > 0 {
		parts = append(parts, "disks with the tags ["+strings.Join(spec.DiskSelector, ", ")+"]")
	}
	return strings.Join(parts, " and ")
}

// tagStep returns the step for a volume whose tags reject disks. Its command adds the tags to the first of these disks
// and its node.
func tagStep(s *Snapshot, lacks []scheduler.Rejection, spec longhorn.VolumeSpec) Step {
	if len(spec.NodeSelector)+len(spec.DiskSelector) == 0 {
		return Step{"Let volumes without tags use nodes and disks with tags (settings below), or remove the tags", "kubectl -n {ns} get lhs allow-empty-node-selector-volume allow-empty-disk-selector-volume"}
	}
	first := lacks[slices.IndexFunc(lacks, func(r scheduler.Rejection) bool { return r.Reason == scheduler.ReasonTagsNotFulfilled })]
	return Step{fmt.Sprintf("The volume requests %s: add these tags where its replicas may be, for example", tagsOf(spec)), tagCommand(s, first, spec)}
}

// tagCommand returns the command that adds the tags which a volume requests to a disk and its node.
func tagCommand(s *Snapshot, at scheduler.Rejection, spec longhorn.VolumeSpec) string {
	n := s.node(at.Node)
	plain := func(text string) bool { return text != "" && plainWord.MatchString(text) }
	if n == nil || !plain(at.Disk) {
		return "kubectl -n {ns} edit lhn " + at.Node
	}
	wanted := map[string]any{}
	if tags := added(n.Spec.Tags, spec.NodeSelector); len(tags) > len(n.Spec.Tags) {
		wanted["tags"] = tags
	}
	if has := n.Spec.Disks[at.Disk].Tags; len(added(has, spec.DiskSelector)) > len(has) {
		wanted["disks"] = map[string]any{at.Disk: map[string]any{"tags": added(has, spec.DiskSelector)}}
	}
	for _, tag := range slices.Concat(n.Spec.Tags, n.Spec.Disks[at.Disk].Tags, spec.NodeSelector, spec.DiskSelector) {
		if !plain(tag) {
			return "kubectl -n {ns} edit lhn " + at.Node
		}
	}
	patch, err := json.Marshal(map[string]any{"spec": wanted})
	if err != nil || len(wanted) == 0 {
		return "kubectl -n {ns} edit lhn " + at.Node
	}
	return fmt.Sprintf("kubectl -n {ns} patch lhn %s --type merge -p '%s'", at.Node, patch)
}

// added returns tags and those of more that it lacks.
func added(tags, more []string) []string {
	all := slices.Clone(tags)
	for _, tag := range more {
		if !slices.Contains(all, tag) {
			all = append(all, tag)
		}
	}
	return all
}
