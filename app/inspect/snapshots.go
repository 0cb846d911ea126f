package inspect

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/longhorn-lep/longhorn-manager/explain"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// Snapshots prints the snapshots of a volume.
func (p Printer) Snapshots(list []*longhorn.Snapshot) {
	t := table{{"SNAPSHOT", "STATE", "CREATED", "SIZE", "LABELS"}}
	for _, s := range list {
		t.add(s.Name, snapshotState(s), cmp.Or(s.Status.CreationTime, "-"), types.SizeText(s.Status.Size), snapshotLabels(s))
	}
	p.table(t)
}

func snapshotState(s *longhorn.Snapshot) string {
	switch {
	case explain.IsDeleted(s):
		return "deleted"
	case s.Status.ReadyToUse:
		return "ready"
	case s.Status.Error != "":
		return "failed"
	}
	return "waiting"
}

func snapshotLabels(s *longhorn.Snapshot) string {
	var texts []string
	for _, key := range slices.Sorted(maps.Keys(s.Spec.Labels)) {
		texts = append(texts, key+"="+string(s.Spec.Labels[key]))
	}
	return strings.Join(texts, ",")
}
