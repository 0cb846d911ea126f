package defaults

import (
	"path"
	"slices"
	"strings"
	"time"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// Input is everything that decides about default disks and tags.
type Input struct {
	// LabeledOnly is the setting create-default-disk-labeled-nodes.
	LabeledOnly bool
	// Labels and Annotations are those on the Kubernetes node.
	Labels, Annotations map[string]string
	// HasDisks and HasTags are about the Longhorn node.
	HasDisks, HasTags bool
	// DiskPaths are the paths of the disks in the Longhorn node's spec.
	DiskPaths []string
	// DefaultDiskDue: the default disk could not be created when the node was registered, and the node has had no disk
	// since.
	DefaultDiskDue bool
}

// Source says where the disks of a node come from.
type Source string

// The sources. FromDataPath gives one disk, at the setting default-data-path; its directory is created. The directories
// of FromConfig must exist.
const (
	FromNowhere  Source = ""
	FromDataPath Source = "default-data-path"
	FromConfig   Source = "default-disks-config"
)

// Decision says what to add to the node.
type Decision struct {
	Source Source
	Disks  []Disk // of FromConfig, at least one
	Tags   []string
	// Problems are about requests that are not applied.
	Problems Problems
}

// Problem is why one of the inputs is not applied.
type Problem struct{ Reason, Message string }

// Problems has the problem of each input. Disks or Tags is nil if its input is correct, or if the input is not in use
// because the node has disks, or tags. Unused is why the annotation with disks is ignored.
type Problems struct{ Disks, Tags, Unused *Problem }

// Decide says which disks a node without disks gets, and which tags a node without tags gets.
//
//	setting off                               no disk; if DefaultDiskDue, the default disk
//	on, label "true"                          the default disk
//	on, label "config", with annotation       its disks
//	on, no label, or label "false"            no disk
//	on, any other label                       no disk, and a Problem
//	annotation with tags                      its tags, whatever setting and label say
//
// Disks and tags do not affect each other.
func Decide(in Input) Decision {
	var d Decision
	switch {
	case in.HasDisks:
	case in.LabeledOnly:
		d.Source, d.Disks, d.Problems.Disks = decideDisks(in)
	case in.DefaultDiskDue:
		d.Source = FromDataPath
	}
	d.Problems.Unused = unused(in)
	if text, ok := in.Annotations[types.AnnotationDefaultNodeTags]; ok && !in.HasTags {
		tags, err := ParseTags(text)
		if err != nil {
			d.Problems.Tags = &Problem{types.ReasonDefaultNodeTagsInvalid, err.Error()}
		}
		d.Tags = tags
	}
	return d
}

// unused says why an annotation with disks is ignored. If the node has disks, the annotation would not be read with any
// setting or label, and the message says so.
func unused(in Input) *Problem {
	text, ok := in.Annotations[types.AnnotationDefaultDisksConfig]
	if !ok {
		return nil
	}
	const ignored = "annotation " + types.AnnotationDefaultDisksConfig + " is not used: "
	remedy := func(value string) string {
		if len(in.DiskPaths) > 0 {
			return "; " + hasDisks
		}
		return "; set it to " + value
	}
	if !in.LabeledOnly {
		return &Problem{
			types.ReasonCreateDefaultDiskSettingOff,
			ignored + "setting " + string(settings.CreateDefaultDiskLabeled) + " is false" + remedy("true"),
		}
	}
	label, ok := in.Labels[types.LabelCreateDefaultDisk]
	if ok && strings.EqualFold(label, types.CreateDefaultDiskConfig) {
		if why := unread(text, in.DiskPaths); why != "" {
			return &Problem{types.ReasonNodeHasDisks, ignored + why}
		}
		return nil
	}
	got := "is missing"
	if ok {
		got = "is " + quoted(label)
	}
	return &Problem{
		types.ReasonCreateDefaultDiskLabelNotConfig,
		ignored + "label " + types.LabelCreateDefaultDisk + " " + got + remedy(types.CreateDefaultDiskConfig),
	}
}

// hasDisks is a clause of messages.
const hasDisks = "the node has disks, and the annotation is read only while it has none"

// unread says why a requested annotation had no effect on a node with the disks at paths. It returns "" if the disks
// may come from the annotation: it can be parsed, and one of its disks belongs to the node. A user may have added and
// removed others since; that is allowed.
func unread(text string, paths []string) string {
	if len(paths) == 0 {
		return ""
	}
	disks, err := ParseDisks(text)
	if err != nil {
		return hasDisks + "; the annotation is also invalid: " + err.Error()
	}
	isTheNodes := func(d Disk) bool {
		return slices.ContainsFunc(paths, func(p string) bool { return path.Clean(p) == d.Path })
	}
	if len(disks) == 0 || slices.ContainsFunc(disks, isTheNodes) {
		return ""
	}
	return hasDisks
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
		return FromNowhere, nil, nil // the annotation may still come
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

// Record writes problems into a node's conditions and removes those that are solved. It returns the new list and its
// news: the conditions that were not there before with the same reason and message. The caller must report these to the
// user. So nothing is reported twice, not even after a restart. It does not modify the given list.
func Record(list []longhorn.Condition, p Problems, now time.Time) (after, news []longhorn.Condition) {
	after = list
	for _, c := range []struct {
		conditionType string
		problem       *Problem
	}{
		{types.ConditionDefaultDisksConfig, p.Disks},
		{types.ConditionDefaultNodeTags, p.Tags},
		{types.ConditionDefaultDisksConfigUsed, p.Unused},
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

// without returns the list itself if it has no condition of the type.
func without(list []longhorn.Condition, conditionType string) []longhorn.Condition {
	for i, c := range list {
		if c.Type == conditionType {
			return append(append([]longhorn.Condition{}, list[:i]...), list[i+1:]...)
		}
	}
	return list
}
