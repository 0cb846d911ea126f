package defaults

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

const (
	goodDisks = `[{"path":"/mnt/a"},{"path":"/mnt/b"}]`
	goodTags  = `["storage","fast"]`
	badDisks  = `[{"path":"mnt/a"}]`
	badTags   = `[".*invalid-tag"]`
	none      = "-" // no such label or annotation
)

// request is a short form of an Input; "-" is absent.
func request(setting bool, label, disks, tags, has string) Input {
	in := Input{
		LabeledOnly: setting, Labels: map[string]string{}, Annotations: map[string]string{},
		HasDisks: strings.Contains(has, "disks"), HasTags: strings.Contains(has, "tags"),
	}
	for _, entry := range []struct {
		into       map[string]string
		key, value string
	}{
		{in.Labels, "node.longhorn.io/create-default-disk", label},
		{in.Annotations, "node.longhorn.io/default-disks-config", disks},
		{in.Annotations, "node.longhorn.io/default-node-tags", tags},
	} {
		if entry.value != none {
			entry.into[entry.key] = entry.value
		}
	}
	return in
}

// outcome is a short form of a Decision.
func outcome(d Decision) string {
	parts := []string{"disks:"}
	switch {
	case d.Problems.Disks != nil:
		parts = append(parts, d.Problems.Disks.Reason)
	case d.Source != FromNowhere:
		parts = append(parts, string(d.Source))
	default:
		parts = append(parts, "none")
	}
	for _, disk := range d.Disks {
		parts = append(parts, disk.Path)
	}
	parts = append(parts, "tags:")
	if d.Problems.Tags != nil {
		parts = append(parts, d.Problems.Tags.Reason)
	}
	if len(d.Tags) == 0 && d.Problems.Tags == nil {
		parts = append(parts, "none")
	}
	return strings.Join(append(parts, d.Tags...), " ")
}

func TestWhatANodeGets(t *testing.T) {
	const (
		off = false
		on  = true
	)
	for name, c := range map[string]struct {
		in   Input
		want string
	}{
		"setting off, nothing said → nothing":                  {request(off, none, none, none, ""), "disks: none tags: none"},
		"setting off, label true → nothing":                    {request(off, "true", none, none, ""), "disks: none tags: none"},
		"setting off, label config, disks → nothing":           {request(off, "config", goodDisks, none, ""), "disks: none tags: none"},
		"setting off, label config, bad disks → not even told": {request(off, "config", badDisks, none, ""), "disks: none tags: none"},
		"setting off, bad label → not even told":               {request(off, "yes", none, none, ""), "disks: none tags: none"},
		"setting off, tags → tags":                             {request(off, none, none, goodTags, ""), "disks: none tags: fast storage"},
		"setting on, nothing said → nothing":                   {request(on, none, none, none, ""), "disks: none tags: none"},
		"setting on, disks without label → nothing":            {request(on, none, goodDisks, none, ""), "disks: none tags: none"},
		"setting on, label true → default disk":                {request(on, "true", none, none, ""), "disks: default-data-path tags: none"},
		"setting on, label TRUE → default disk":                {request(on, "TRUE", none, none, ""), "disks: default-data-path tags: none"},
		"setting on, label true, disks → default disk":         {request(on, "true", goodDisks, none, ""), "disks: default-data-path tags: none"},
		"setting on, label true, bad disks → default disk":     {request(on, "true", badDisks, none, ""), "disks: default-data-path tags: none"},
		"setting on, label config, disks → its disks":          {request(on, "config", goodDisks, none, ""), "disks: default-disks-config /mnt/a /mnt/b tags: none"},
		"setting on, label Config, disks → its disks":          {request(on, "Config", goodDisks, none, ""), "disks: default-disks-config /mnt/a /mnt/b tags: none"},
		"setting on, label config without annotation → waits":  {request(on, "config", none, none, ""), "disks: none tags: none"},
		"setting on, label config, empty list → nothing":       {request(on, "config", "[]", none, ""), "disks: none tags: none"},
		"setting on, label config, bad disks → told":           {request(on, "config", badDisks, none, ""), "disks: DefaultDisksConfigInvalid tags: none"},
		"setting on, label false → nothing":                    {request(on, "False", goodDisks, none, ""), "disks: none tags: none"},
		"setting on, label of no meaning → told":               {request(on, "yes", goodDisks, none, ""), "disks: CreateDefaultDiskLabelInvalid tags: none"},
		"setting on, empty label → told":                       {request(on, "", goodDisks, none, ""), "disks: CreateDefaultDiskLabelInvalid tags: none"},
		"has disks, label true → nothing":                      {request(on, "true", none, none, "disks"), "disks: none tags: none"},
		"has disks, label config → nothing":                    {request(on, "config", goodDisks, none, "disks"), "disks: none tags: none"},
		"has disks, bad disks → not in use, not told":          {request(on, "config", badDisks, none, "disks"), "disks: none tags: none"},
		"has disks, bad label → not in use, not told":          {request(on, "yes", none, none, "disks"), "disks: none tags: none"},
		"has disks, no tags, tags → tags":                      {request(on, "config", goodDisks, goodTags, "disks"), "disks: none tags: fast storage"},
		"has tags, tags → nothing":                             {request(off, none, none, goodTags, "tags"), "disks: none tags: none"},
		"has tags, bad tags → not in use, not told":            {request(off, none, none, badTags, "tags"), "disks: none tags: none"},
		"has tags, no disks, disks → disks":                    {request(on, "config", goodDisks, goodTags, "tags"), "disks: default-disks-config /mnt/a /mnt/b tags: none"},
		"has both → nothing":                                   {request(on, "config", goodDisks, goodTags, "disks tags"), "disks: none tags: none"},
		"both asked for → both":                                {request(on, "config", goodDisks, goodTags, ""), "disks: default-disks-config /mnt/a /mnt/b tags: fast storage"},
		"bad disks, good tags → tags":                          {request(on, "config", badDisks, goodTags, ""), "disks: DefaultDisksConfigInvalid tags: fast storage"},
		"good disks, bad tags → disks":                         {request(on, "config", goodDisks, badTags, ""), "disks: default-disks-config /mnt/a /mnt/b tags: DefaultNodeTagsInvalid"},
		"both bad → both told":                                 {request(on, "config", badDisks, badTags, ""), "disks: DefaultDisksConfigInvalid tags: DefaultNodeTagsInvalid"},
		"setting off, bad tags → told":                         {request(off, none, none, badTags, ""), "disks: none tags: DefaultNodeTagsInvalid"},
		"tags an empty list → nothing":                         {request(off, none, none, "[]", ""), "disks: none tags: none"},
		"bad label, good tags → tags":                          {request(on, "2", none, goodTags, ""), "disks: CreateDefaultDiskLabelInvalid tags: fast storage"},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, c.want, outcome(Decide(c.in)))
		})
	}
}

// TestTheLabelsMessage: an Event must say, without other context, which value of which label is wrong.
func TestTheLabelsMessage(t *testing.T) {
	d := Decide(request(true, "yes", none, none, ""))
	want := `label node.longhorn.io/create-default-disk: must be true, config or false, got "yes"; the node gets no disk`
	assert.Equal(t, want, d.Problems.Disks.Message)
}

// If an annotation is not used, the Problem says so, and which change would make the node use it. On a node with disks,
// no change would.
func TestWhyTheDisksAreNotUsed(t *testing.T) {
	const (
		ignored  = "annotation node.longhorn.io/default-disks-config is not used: "
		hasDisks = "the node has disks, and the annotation is read only while it has none"
		typo     = `[{"path":"/mnt/a","alowScheduling":true}]`
	)
	for name, c := range map[string]struct {
		in     Input
		paths  []string
		reason string
		says   string
	}{
		"no annotation → nothing to say":                    {request(true, "cofnig", none, none, ""), []string{"/mnt/c"}, "", ""},
		"setting off → set it":                              {request(false, "config", goodDisks, none, ""), nil, "CreateDefaultDiskSettingOff", ignored + "setting create-default-disk-labeled-nodes is false; set it to true"},
		"setting off, it has disks → that would not help":   {request(false, "config", goodDisks, none, ""), []string{"/mnt/c"}, "CreateDefaultDiskSettingOff", ignored + "setting create-default-disk-labeled-nodes is false; " + hasDisks},
		"another label → set it":                            {request(true, "cofnig", goodDisks, none, ""), nil, "CreateDefaultDiskLabelNotConfig", ignored + `label node.longhorn.io/create-default-disk is "cofnig"; set it to config`},
		"another label, it has disks → that would not help": {request(true, "cofnig", typo, none, "disks"), []string{"/mnt/c"}, "CreateDefaultDiskLabelNotConfig", ignored + `label node.longhorn.io/create-default-disk is "cofnig"; ` + hasDisks},
		"asked for, it has other disks → not read":          {request(true, "config", goodDisks, none, "disks"), []string{"/mnt/c"}, "NodeHasDisks", ignored + hasDisks},
		"asked for, it has other disks, a mistake → both": {request(true, "config", typo, none, "disks"), []string{"/mnt/c"}, "NodeHasDisks", ignored + hasDisks + `; the annotation is also invalid: default-disks-config: disk 1, key "alowScheduling", line 1 column 19: is unknown; ` +
			"the keys of a disk are path, allowScheduling, evictionRequested, storageReserved, tags, name, diskType, diskDriver"},
		"asked for, it has its disks → it works":                 {request(true, "config", goodDisks, none, "disks"), []string{"/mnt/a", "/mnt/b"}, "", ""},
		"asked for, one is left, one added since → it works":     {request(true, "config", goodDisks, none, "disks"), []string{"/mnt/b/", "/mnt/c"}, "", ""},
		"asked for, it has none → it is being read":              {request(true, "config", goodDisks, none, ""), nil, "", ""},
		"asked for, disks are just being removed → it is waited": {request(true, "config", goodDisks, none, "disks"), nil, "", ""},
		"asked for, empty list → asks for nothing":               {request(true, "config", "[]", none, "disks"), []string{"/mnt/c"}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			c.in.DiskPaths, c.in.HasDisks = c.paths, c.in.HasDisks || len(c.paths) > 0
			problems := Decide(c.in).Problems
			if len(c.paths) > 0 {
				assert.Nil(t, problems.Disks, "a node with disks is fine")
			}
			if c.reason == "" {
				assert.Nil(t, problems.Unused)
				return
			}
			if assert.NotNil(t, problems.Unused) {
				assert.Equal(t, c.reason, problems.Unused.Reason)
				assert.Equal(t, c.says, problems.Unused.Message)
			}
		})
	}
}

// TestTheOrderOfArrivalDoesNotMatter adds setting, label, annotations and node in all 120 orders. Before the last input
// that the disks need, the node has none. After the last one, the result is always the same.
func TestTheOrderOfArrivalDoesNotMatter(t *testing.T) {
	arrivals := []string{"setting", "label", "disks", "tags", "node"}
	var permute func(done, left []string)
	orders := 0
	permute = func(done, left []string) {
		if len(left) == 0 {
			orders++
			arrive(t, done)
		}
		for i := range left {
			rest := append(append([]string{}, left[:i]...), left[i+1:]...)
			permute(append(append([]string{}, done...), left[i]), rest)
		}
	}
	permute(nil, arrivals)
	assert.Equal(t, 120, orders)
}

func arrive(t *testing.T, order []string) {
	t.Helper()
	there := map[string]bool{}
	var gotDisks []string
	var gotTags []string
	value := func(name, v string) string {
		if there[name] {
			return v
		}
		return none
	}
	for _, next := range order {
		there[next] = true
		if !there["node"] {
			continue
		}
		in := request(there["setting"], value("label", "config"), value("disks", goodDisks), value("tags", goodTags), "")
		in.HasDisks, in.HasTags = gotDisks != nil, gotTags != nil
		d := Decide(in)
		assert.Nil(t, d.Problems.Disks, "%v at %s", order, next)
		assert.Nil(t, d.Problems.Tags)
		for _, disk := range d.Disks {
			assert.True(t, there["setting"], "%v at %s: disk %s", order, next, disk.Path)
			assert.True(t, there["label"])
			assert.True(t, there["disks"])
			gotDisks = append(gotDisks, disk.Path)
		}
		gotTags = append(gotTags, d.Tags...)
	}
	assert.Equal(t, "[/mnt/a /mnt/b] [fast storage]", fmt.Sprint(gotDisks, gotTags), order)
}

func TestProblemsBecomeConditionsAndNewsOnce(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	old := "2029-12-31T00:00:00Z"
	ready := longhorn.Condition{Type: "Ready", Status: "True"}
	condition := func(conditionType, reason, message, since string) longhorn.Condition {
		return longhorn.Condition{Type: conditionType, Status: "False", Reason: reason, Message: message, LastTransitionTime: since}
	}
	for name, c := range map[string]struct {
		before      []longhorn.Condition
		problems    Problems
		after, news []longhorn.Condition
	}{
		"no problem, none before → nothing": {
			before: []longhorn.Condition{ready}, after: []longhorn.Condition{ready},
		},
		"a new problem → told": {
			before: []longhorn.Condition{ready}, problems: Problems{Disks: &Problem{"R", "m"}},
			after: []longhorn.Condition{ready, condition("DefaultDisksConfig", "R", "m", "2030-01-02T03:04:05Z")},
			news:  []longhorn.Condition{condition("DefaultDisksConfig", "R", "m", "2030-01-02T03:04:05Z")},
		},
		"two new problems → both told": {
			problems: Problems{Disks: &Problem{"R", "m"}, Tags: &Problem{"S", "n"}},
			after: []longhorn.Condition{
				condition("DefaultDisksConfig", "R", "m", "2030-01-02T03:04:05Z"), condition("DefaultNodeTags", "S", "n", "2030-01-02T03:04:05Z"),
			},
			news: []longhorn.Condition{
				condition("DefaultDisksConfig", "R", "m", "2030-01-02T03:04:05Z"), condition("DefaultNodeTags", "S", "n", "2030-01-02T03:04:05Z"),
			},
		},
		"a problem that is there already → not told": {
			before:   []longhorn.Condition{condition("DefaultDisksConfig", "R", "m", old), ready},
			problems: Problems{Disks: &Problem{"R", "m"}},
			after:    []longhorn.Condition{condition("DefaultDisksConfig", "R", "m", old), ready},
		},
		"the annotation is wrong otherwise → told, since before": {
			before:   []longhorn.Condition{condition("DefaultDisksConfig", "R", "m", old), ready},
			problems: Problems{Disks: &Problem{"R", "other"}},
			after:    []longhorn.Condition{condition("DefaultDisksConfig", "R", "other", old), ready},
			news:     []longhorn.Condition{condition("DefaultDisksConfig", "R", "other", old)},
		},
		"mended → taken out, the other stays": {
			before: []longhorn.Condition{
				condition("DefaultDisksConfig", "R", "m", old), ready, condition("DefaultNodeTags", "S", "n", old),
			},
			problems: Problems{Tags: &Problem{"S", "n"}},
			after:    []longhorn.Condition{ready, condition("DefaultNodeTags", "S", "n", old)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := append([]longhorn.Condition{}, c.before...)
			after, news := Record(before, c.problems, now)
			if len(c.after) == 0 {
				assert.Empty(t, after)
			} else {
				assert.Equal(t, c.after, after)
			}
			assert.Equal(t, c.news, news)
			assert.Equal(t, before, append([]longhorn.Condition{}, c.before...), "the list given was modified")
		})
	}
}
