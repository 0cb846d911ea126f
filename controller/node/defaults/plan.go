package defaults

import (
	"strings"
	"time"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// Input is all that decides about default disks and tags.
type Input struct {
	// LabeledOnly is the setting create-default-disk-labeled-nodes.
	LabeledOnly bool
	// Labels and Annotations are the Kubernetes node's.
	Labels, Annotations map[string]string
	// HasDisks and HasTags are of the Longhorn node.
	HasDisks, HasTags bool
}

// Source is where the disks of a node come from.
type Source string

// The sources. Of FromDataPath there is one disk, at the setting default-data-path,
// whose directory is made; the directories of FromConfig must exist.
const (
	FromNowhere  Source = ""
	FromDataPath Source = "default-data-path"
	FromConfig   Source = "default-disks-config"
)

// Decision is what is to be added to the node.
type Decision struct {
	Source Source
	Disks  []Disk // of FromConfig, at least one
	Tags   []string
	// Problems are with what was asked for and is not applied.
	Problems Problems
}

// Problem is why one of the inputs is not applied.
type Problem struct{ Reason, Message string }

// Problems are those of both inputs, each nil when nothing is wrong with it, or when it
// is not in use because the node has disks, or tags.
type Problems struct{ Disks, Tags *Problem }

// Decide says what a node without disks gets for disks, and one without tags for tags.
//
//	setting off                               no disk
//	on, label "true"                          the default disk
//	on, label "config", with annotation       its disks
//	on, no label, or label "false"            no disk
//	on, any other label                       no disk, and a Problem
//	annotation with tags                      its tags, whatever setting and label say
//
// Neither hinders the other.
func Decide(in Input) Decision {
	var d Decision
	if in.LabeledOnly && !in.HasDisks {
		d.Source, d.Disks, d.Problems.Disks = decideDisks(in)
	}
	if text, ok := in.Annotations[types.AnnotationDefaultNodeTags]; ok && !in.HasTags {
		tags, err := ParseTags(text)
		if err != nil {
			d.Problems.Tags = &Problem{types.ReasonDefaultNodeTagsInvalid, err.Error()}
		}
		d.Tags = tags
	}
	return d
}

func decideDisks(in Input) (Source, []Disk, *Problem) {
	label, ok := in.Labels[types.LabelCreateDefaultDisk]
	if !ok {
		return FromNowhere, nil, nil
	}
	switch strings.ToLower(label) {
	case types.CreateDefaultDiskTrue:
		return FromDataPath, nil, nil
	case types.CreateDefaultDiskFalse:
		return FromNowhere, nil, nil
	case types.CreateDefaultDiskConfig:
	default:
		return FromNowhere, nil, &Problem{
			types.ReasonCreateDefaultDiskLabelInvalid,
			"label " + types.LabelCreateDefaultDisk + ": must be true, config or false, got " + quoted(label) + "; the node gets no disk",
		}
	}
	text, ok := in.Annotations[types.AnnotationDefaultDisksConfig]
	if !ok {
		return FromNowhere, nil, nil // it may be on its way
	}
	disks, err := ParseDisks(text)
	if err != nil {
		return FromNowhere, nil, &Problem{types.ReasonDefaultDisksConfigInvalid, err.Error()}
	}
	if len(disks) == 0 {
		return FromNowhere, nil, nil
	}
	return FromConfig, disks, nil
}

// Record puts problems into a node's conditions and takes those out that are no more.
// It returns the new list and, of what is in it, what was not there before with the
// same reason and message: what the user must be told. So nothing is told twice, not
// even after a restart. The given list is not modified.
func Record(list []longhorn.Condition, p Problems, now time.Time) (after, news []longhorn.Condition) {
	after = list
	for _, c := range []struct {
		conditionType string
		problem       *Problem
	}{
		{types.ConditionDefaultDisksConfig, p.Disks},
		{types.ConditionDefaultNodeTags, p.Tags},
	} {
		if c.problem == nil {
			after = without(after, c.conditionType)
			continue
		}
		condition := longhorn.Condition{
			Type: c.conditionType, Status: longhorn.ConditionFalse, Reason: c.problem.Reason, Message: c.problem.Message,
		}
		var changed bool
		if after, changed = types.SetCondition(after, condition, now); changed {
			news = append(news, types.FindCondition(after, c.conditionType))
		}
	}
	return after, news
}

// without returns the list itself where it has no condition of the type.
func without(list []longhorn.Condition, conditionType string) []longhorn.Condition {
	for i, c := range list {
		if c.Type == conditionType {
			return append(append([]longhorn.Condition{}, list[:i]...), list[i+1:]...)
		}
	}
	return list
}
