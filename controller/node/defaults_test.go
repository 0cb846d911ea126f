package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/disk"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// asked is the Kubernetes node with these labels and annotations; "-" is absent.
func asked(label, disks, tags string) *corev1.Node {
	n := build.KubeNode("node-1")
	n.Labels, n.Annotations = map[string]string{}, map[string]string{}
	for _, entry := range []struct {
		into       map[string]string
		key, value string
	}{
		{n.Labels, types.LabelCreateDefaultDisk, label},
		{n.Annotations, types.AnnotationDefaultDisksConfig, disks},
		{n.Annotations, types.AnnotationDefaultNodeTags, tags},
	} {
		if entry.value != "-" {
			entry.into[entry.key] = entry.value
		}
	}
	return n
}

func labeledNodes() *longhorn.Setting {
	return build.Setting(settings.CreateDefaultDiskLabeled, "true")
}

// newDefaultsFixture has a node without disk, and two file systems of 100 GiB.
func newDefaultsFixture(t *testing.T, kubeNode *corev1.Node, objs ...runtime.Object) *fixture {
	f := newFixture(t, append([]runtime.Object{kubeNode}, objs...)...)
	on := func(device uint64, fsid string) disk.Record {
		return found(withoutFile, func(r *disk.Record) { r.DeviceID, r.FSID = device, fsid })
	}
	f.disks.records = map[string]disk.Record{
		"/var/lib/longhorn": on(9, "root"), "/mnt/a": on(1, "aa"), "/mnt/a/below": on(1, "aa"), "/mnt/b": on(2, "bb"),
		"/mnt/none":   {Err: fmt.Errorf("open directory /mnt/none: %w", fs.ErrNotExist)},
		"/mnt/broken": {Err: errors.New("open directory /mnt/broken: input/output error")},
	}
	return f
}

func (f *fixture) change(mutate func(*longhorn.Node)) {
	f.T.Helper()
	n := f.live()
	mutate(n)
	f.Overwrite(n)
	f.CatchUp()
}

func (f *fixture) setKubeNode(n *corev1.Node) {
	f.T.Helper()
	f.Overwrite(n)
	f.CatchUp()
}

// syncAll syncs until a sync writes nothing.
func (f *fixture) syncAll() {
	f.T.Helper()
	for range 8 {
		f.Writes()
		f.CatchUp()
		f.mustSync()
		if writes := f.Writes(); len(writes) == 0 {
			return
		}
	}
	f.T.Fatal("the node does not come to rest")
}

func paths(n *longhorn.Node) []string {
	var list []string
	for name, d := range n.Spec.Disks {
		list = append(list, name+"="+d.Path)
	}
	slices.Sort(list)
	return list
}

func (f *fixture) expectSpec(disks, tags []string) {
	f.T.Helper()
	n := f.live()
	none := []string{} // what is nil is the same
	assert.Equal(f.T, append(none, disks...), append(none, paths(n)...))
	assert.Equal(f.T, append(none, tags...), append(none, n.Spec.Tags...))
}

func (f *fixture) expectCondition(conditionType, reason, message string) {
	f.T.Helper()
	c := types.FindCondition(f.live().Status.Conditions, conditionType)
	if reason == "" {
		assert.Equal(f.T, longhorn.ConditionUnknown, c.Status, conditionType)
		return
	}
	assert.Equal(f.T, longhorn.ConditionFalse, c.Status, conditionType)
	assert.Equal(f.T, reason, c.Reason, conditionType)
	assert.Equal(f.T, message, c.Message, conditionType)
}

// TestEveryBadAnnotationLeavesTheNodeAsItWasAndIsToldOnce: no part of it is applied. The reason is in two Events and a
// condition, and the next sync does not repeat it.
func TestEveryBadAnnotationLeavesTheNodeAsItWasAndIsToldOnce(t *testing.T) {
	data, err := os.ReadFile("defaults/testdata/bad.yaml")
	require.NoError(t, err)
	var cases []struct {
		Case, Error string
		Disks, Tags *string
	}
	require.NoError(t, yaml.UnmarshalStrict(data, &cases))
	require.GreaterOrEqual(t, len(cases), 40)
	for _, c := range cases {
		t.Run(c.Case, func(t *testing.T) {
			kubeNode, conditionType, reason := asked("config", "-", "-"), "DefaultDisksConfig", "DefaultDisksConfigInvalid"
			if c.Disks != nil {
				kubeNode.Annotations["node.longhorn.io/default-disks-config"] = *c.Disks
			} else {
				kubeNode.Annotations["node.longhorn.io/default-node-tags"] = *c.Tags
				conditionType, reason = "DefaultNodeTags", "DefaultNodeTagsInvalid"
			}
			f := newDefaultsFixture(t, kubeNode, labeledNodes(), build.Node("node-1", cordonChecked))
			before := f.live().Spec

			f.mustSync()
			f.ExpectWrites("update nodes/node-1/status")
			warning := "Warning " + reason + " node-1: " + c.Error
			f.expectTold(warning, warning)
			f.expectCondition(conditionType, reason, c.Error)

			f.CatchUp()
			for range 3 {
				f.mustSync()
			}
			f.ExpectWrites()
			f.expectTold()
			assert.Equal(t, before, f.live().Spec)
			assert.Empty(t, f.disks.done, "on disk")
		})
	}
}

// expectTold checks the Events about defaults; others do not matter here.
func (f *fixture) expectTold(want ...string) {
	f.T.Helper()
	got := slices.DeleteFunc(f.Recorder.Take(), func(line string) bool {
		return !strings.Contains(line, "Invalid ") && !strings.Contains(line, "DefaultDiskFailed ")
	})
	assert.Equal(f.T, want, got)
}

// cordonChecked has the condition that every first sync writes.
func cordonChecked(n *longhorn.Node) {
	n.Status.Conditions = []longhorn.Condition{{
		Type: "Schedulable", Status: "True", Message: "Kubernetes node node-1 is not cordoned", LastTransitionTime: "2029-01-01T00:00:00Z",
	}}
	n.Status.DiskStatus = map[string]longhorn.DiskStatus{}
}

// objects stores the kind of the objects in Events.
type objects struct {
	testutil.Recorder
	kinds []string
}

func (o *objects) Event(obj runtime.Object, eventType, reason, message string) {
	if strings.HasSuffix(reason, "Invalid") {
		o.kinds = append(o.kinds, fmt.Sprintf("%T", obj))
	}
	o.Recorder.Event(obj, eventType, reason, message)
}

func TestABadAnnotationIsToldOfBothNodes(t *testing.T) {
	f := newDefaultsFixture(t, asked("-", "-", "fast"), build.Node("node-1", cordonChecked))
	recorder := &objects{}
	f.deps.Recorder = recorder
	f.mustSync()
	want := []string{"*v1.Node", "*v1beta2.Node"}
	assert.Equal(t, want, recorder.kinds)
}

// TestTheDocumentedScenario executes the documented test plan from its third step.
func TestTheDocumentedScenario(t *testing.T) {
	f := newDefaultsFixture(t, build.KubeNode("node-1"), labeledNodes())
	f.syncAll() // 3: a new node has no disk and no tag
	f.expectSpec(nil, nil)
	assert.Empty(t, f.disks.done, "on disk")

	step4 := asked("config",
		`[{"path":"/mnt/a","allowScheduling":false}, {"path":"/mnt/b","allowScheduling":true,"storageReserved":1024,"tags":["ssd","fast"]}]`,
		`["fast","storage"]`)
	f.setKubeNode(step4)
	f.mustSync()
	f.ExpectWrites("update nodes/node-1") // both at once
	f.syncAll()
	f.expectSpec([]string{"default-disk-aa=/mnt/a", "default-disk-bb=/mnt/b"}, []string{"fast", "storage"})
	want := map[string]longhorn.DiskSpec{
		"default-disk-aa": {Type: "filesystem", Path: "/mnt/a", StorageReserved: 30 * gib, Tags: []string{}},
		"default-disk-bb": {Type: "filesystem", Path: "/mnt/b", AllowScheduling: true, StorageReserved: 1024, Tags: []string{"fast", "ssd"}},
	}
	assert.Equal(t, want, f.live().Spec.Disks)

	f.change(func(n *longhorn.Node) { // 5: edits stay, and the annotations too
		n.Spec.Tags = []string{"mine"}
		delete(n.Spec.Disks, "default-disk-aa")
	})
	f.syncAll()
	f.expectSpec([]string{"default-disk-bb=/mnt/b"}, []string{"mine"})
	kubeNode, err := f.store.KubeNodes.Live(t.Context(), "node-1")
	require.NoError(t, err)
	assert.Equal(t, step4.Annotations, kubeNode.Annotations)

	f.change(func(n *longhorn.Node) { n.Spec.Disks, n.Spec.Tags = nil, nil }) // 6
	f.syncAll()
	f.expectSpec([]string{"default-disk-aa=/mnt/a", "default-disk-bb=/mnt/b"}, []string{"fast", "storage"})
	f.Recorder.Take()

	f.change(func(n *longhorn.Node) { n.Spec.Disks, n.Spec.Tags = nil, nil }) // 7, on the same node
	f.setKubeNode(asked("config", `[{"path":"/mnt/none","allowScheduling":false}]`, `["slow",".*invalid-tag"]`))
	f.syncAll()
	f.expectSpec(nil, nil)
	noPath := `Warning DefaultDisksConfigInvalid node-1: default-disks-config: disk 1, key "path", line 1 column 10: "/mnt/none" does not exist on the node`
	noTag := `Warning DefaultNodeTagsInvalid node-1: default-node-tags: tag 2, line 1 column 9: must be a tag: up to 63 letters, digits, '-', '_' or '.', ` +
		`with a letter or digit at both ends, and perhaps a DNS name and '/' before them, got ".*invalid-tag"`
	f.expectTold(noTag, noTag, noPath, noPath) // the disks, when the status of the former ones is gone

	f.disks.records["/mnt/none"] = f.disks.records["/mnt/a"] // 8
	f.setKubeNode(asked("config", `[{"path":"/mnt/none","allowScheduling":false}]`, `["slow","storage"]`))
	f.syncAll()
	f.expectSpec([]string{"default-disk-aa=/mnt/none"}, []string{"slow", "storage"})
	f.expectCondition("DefaultDisksConfig", "", "")
	f.expectCondition("DefaultNodeTags", "", "")
}

func TestADirectoryThatIsMadeLaterIsFoundWithoutAnEvent(t *testing.T) {
	f := newDefaultsFixture(t, asked("config", `[{"path":"/mnt/none"}]`, "-"), labeledNodes(), build.Node("node-1", cordonChecked))
	f.mustSync()
	f.Writes()
	f.CatchUp()
	result, err := f.sync(t.Context(), "node-1")
	require.NoError(t, err)
	require.Equal(t, float64(3), result.RequeueAfter.Seconds(), "sync = %+v", result)
	f.ExpectWrites()
	f.disks.records["/mnt/none"] = f.disks.records["/mnt/b"]
	f.mustSync()
	f.ExpectWrites("update nodes/node-1")
	f.expectSpec([]string{"default-disk-bb=/mnt/none"}, nil)
	f.syncAll()
	f.expectCondition("DefaultDisksConfig", "", "")
}

func TestADaemonThatStartsAgainTellsNothingAgain(t *testing.T) {
	f := newDefaultsFixture(t, asked("config", `[{"path":"mnt"}]`, `["*"]`), labeledNodes(), build.Node("node-1", cordonChecked))
	f.mustSync()
	relative := `Warning DefaultDisksConfigInvalid node-1: default-disks-config: disk 1, key "path", line 1 column 10: "mnt" must be an absolute path`
	noTag := `Warning DefaultNodeTagsInvalid node-1: default-node-tags: tag 1, line 1 column 2: must be a tag: up to 63 letters, digits, '-', '_' or '.', ` +
		`with a letter or digit at both ends, and perhaps a DNS name and '/' before them, got "*"`
	f.expectTold(relative, relative, noTag, noTag)
	f.Writes()
	f.CatchUp()
	f.Controller = f.newController(f.disks)
	f.mustSync()
	f.ExpectWrites()
	f.expectTold()

	// Another mistake is reported, but only for the disks.
	f.setKubeNode(asked("config", `[{"path":""}]`, `["*"]`))
	f.mustSync()
	f.ExpectWrites("update nodes/node-1/status")
	warning := `Warning DefaultDisksConfigInvalid node-1: default-disks-config: disk 1, key "path", line 1 column 10: must not be empty`
	f.expectTold(warning, warning)

	// The annotation is not in use: there is no mistake to report.
	f.change(func(n *longhorn.Node) { build.WithDisk("d", "/mnt/a")(n) })
	f.syncAll()
	f.expectCondition("DefaultDisksConfig", "", "")
}

func TestAnEventIsToldOnlyWhenTheConditionWasWritten(t *testing.T) {
	f := newDefaultsFixture(t, asked("-", "-", "null"), build.Node("node-1", cordonChecked))
	f.Fail("update", "nodes", errors.New("timeout"))
	_, err := f.sync(t.Context(), "node-1")
	assert.Error(t, err)
	f.expectTold()
	f.mustSync()
	warning := "Warning DefaultNodeTagsInvalid node-1: default-node-tags: line 1 column 1: must be a list of tags, got null"
	f.expectTold(warning, warning)
}

func TestADiskThatTheUserAddsMeanwhileIsNotReplaced(t *testing.T) {
	for name, label := range map[string]string{"label config": "config", "label true": "true"} {
		t.Run(name, func(t *testing.T) {
			f := newDefaultsFixture(t, asked(label, `[{"path":"/mnt/a"}]`, "-"), labeledNodes(), build.Node("node-1", cordonChecked))
			n := f.live()
			build.WithDisk("mine", "/mnt/b")(n)
			f.Overwrite(n) // and the cache does not know

			_, err := f.sync(t.Context(), "node-1")
			assert.ErrorIs(t, err, queue.ErrStale)
			f.ExpectWrites()
			assert.Empty(t, f.disks.done, "on disk")
			f.expectSpec([]string{"mine=/mnt/b"}, nil)
			f.syncAll()
			f.expectSpec([]string{"mine=/mnt/b"}, nil)
		})
	}
}

func TestANodeThatWasMadeAnewMeanwhileIsLeftToTheNextSync(t *testing.T) {
	f := newDefaultsFixture(t, asked("config", `[{"path":"/mnt/a"}]`, "-"), labeledNodes(), build.Node("node-1", cordonChecked))
	n := f.live()
	n.UID = "another"
	f.Overwrite(n)
	_, err := f.sync(t.Context(), "node-1")
	assert.ErrorIs(t, err, queue.ErrStale)
	f.ExpectWrites()
}

func TestAConflictIsTriedAgain(t *testing.T) {
	f := newDefaultsFixture(t, asked("config", `[{"path":"/mnt/a"}]`, `["fast"]`), labeledNodes(), build.Node("node-1", cordonChecked))
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, "node-1", nil)
	f.Fail("update", "nodes", conflict, conflict)
	for range 2 {
		_, err := f.sync(t.Context(), "node-1")
		assert.True(t, apierrors.IsConflict(err), "sync = %v, want a conflict", err)
		f.expectSpec(nil, nil)
	}
	f.mustSync()
	f.ExpectWrites("update nodes/node-1", "update nodes/node-1", "update nodes/node-1")
	f.expectSpec([]string{"default-disk-aa=/mnt/a"}, []string{"fast"})
	_, err := f.sync(t.Context(), "node-1")
	assert.ErrorIs(t, err, queue.ErrStale)
}

func TestASpecThatTheAPIServerRefusesIsToldAndHoldsUpNothing(t *testing.T) {
	f := newDefaultsFixture(t, asked("config", `[{"path":"/mnt/a"}]`, `["fast"]`), labeledNodes(), build.Node("node-1"))
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "node-1", errors.New("a policy says no"))
	f.Fail("update", "nodes", forbidden)
	f.mustSync()
	f.ExpectWrites("update nodes/node-1", "update nodes/node-1/status")
	disks := `Warning DefaultDisksConfigInvalid node-1: the API server refuses the disks: update nodes.longhorn.io node-1: nodes "node-1" is forbidden: a policy says no`
	tags := `Warning DefaultNodeTagsInvalid node-1: the API server refuses the tags: update nodes.longhorn.io node-1: nodes "node-1" is forbidden: a policy says no`
	f.expectTold(disks, disks, tags, tags)
	assert.True(t, types.IsConditionTrue(f.live().Status.Conditions, "Schedulable"), "the rest of the status was not written")
	f.syncAll()
	f.expectSpec([]string{"default-disk-aa=/mnt/a"}, []string{"fast"})
	f.expectCondition("DefaultDisksConfig", "", "")
	f.expectCondition("DefaultNodeTags", "", "")
}

// TestANewDiskInheritsNoIdentity: the status of the removed disk is removed first.
func TestANewDiskInheritsNoIdentity(t *testing.T) {
	f := newDefaultsFixture(t, asked("config", `[{"path":"/mnt/a","name":"disk-1"}]`, "-"), labeledNodes(),
		build.ReadyNode("node-1", uuid1, func(n *longhorn.Node) { n.Spec.Disks = nil }))
	f.mustSync()
	f.ExpectWrites("update nodes/node-1/status")
	n := f.live()
	assert.Empty(t, n.Status.DiskStatus)
	assert.Empty(t, n.Spec.Disks)
	f.syncAll()
	f.expectSpec([]string{"disk-1=/mnt/a"}, nil)
	got := f.live().Status.DiskStatus["disk-1"].DiskUUID
	assert.NotEqual(t, uuid1, got)
	assert.NotEmpty(t, got, "the new disk has UUID")
}

func TestTheDefaultDiskIsMadeWheneverTheLabelAsksAndThereIsNone(t *testing.T) {
	f := newDefaultsFixture(t, asked("TRUE", badDisksOf(), "-"), labeledNodes())
	f.syncAll()
	f.expectSpec([]string{"default-disk-root=/var/lib/longhorn"}, nil)
	d := f.live().Spec.Disks["default-disk-root"]
	assert.True(t, d.AllowScheduling)
	assert.Equal(t, int64(30*gib), d.StorageReserved)
	assert.Equal(t, longhorn.DiskType("filesystem"), d.Type)
	f.change(func(n *longhorn.Node) { n.Spec.Disks = nil })
	f.syncAll()
	f.expectSpec([]string{"default-disk-root=/var/lib/longhorn"}, nil)
	prepares := slices.DeleteFunc(slices.Clone(f.disks.done), func(s string) bool { return s != "prepare /var/lib/longhorn" })
	assert.Len(t, prepares, 2, "on disk: %v", f.disks.done)
}

// badDisksOf is an annotation that the daemon ignores while the label says true.
func badDisksOf() string { return `[{"path":"relative"}]` }

func TestADefaultDiskThatCannotBeMadeIsToldAndTheTagsAreSetAllTheSame(t *testing.T) {
	f := newDefaultsFixture(t, asked("true", "-", `["fast"]`), labeledNodes(), build.Node("node-1", cordonChecked))
	f.disks.prepareErr = errors.New("read-only file system")
	f.syncAll()
	f.expectSpec(nil, []string{"fast"})
	message := "the default disk could not be created: read-only file system"
	f.expectCondition("DefaultDisksConfig", "DefaultDiskFailed", message)
	f.expectTold("Warning DefaultDiskFailed node-1: "+message, "Warning DefaultDiskFailed node-1: "+message)

	f.disks.prepareErr = nil
	f.syncAll()
	f.expectSpec(nil, []string{"fast"}) // not tried again yet
	f.expectCondition("DefaultDisksConfig", "DefaultDiskFailed", message)
	f.Clock.Step(3 * time.Second)
	f.syncAll()
	f.expectSpec([]string{"default-disk-root=/var/lib/longhorn"}, []string{"fast"})
	f.expectCondition("DefaultDisksConfig", "", "")
}

const notMade = "the default disk could not be created: read-only file system"

// dueFixture is a node that was registered while the setting was off and its default disk could not be created.
func dueFixture(t *testing.T, objs ...runtime.Object) *fixture {
	f := newDefaultsFixture(t, asked("-", "-", "-"), objs...)
	f.disks.prepareErr = errors.New("read-only file system")
	f.mustSync()
	f.syncAll()
	f.expectSpec(nil, nil)
	f.expectCondition("DefaultDisksConfig", "DefaultDiskFailed", notMade)
	f.expectTold("Warning DefaultDiskFailed node-1: "+notMade, "Warning DefaultDiskFailed node-1: "+notMade)
	return f
}

func TestADefaultDiskThatCouldNotBeMadeAtTheRegistrationIsTriedAgain(t *testing.T) {
	f := dueFixture(t)
	tries := func() int {
		return len(slices.DeleteFunc(slices.Clone(f.disks.done), func(s string) bool { return s != "prepare /var/lib/longhorn" }))
	}
	for _, delay := range []time.Duration{3 * time.Second, 6 * time.Second, 12 * time.Second} {
		before := tries()
		f.Clock.Step(delay - time.Millisecond)
		f.mustSync()
		require.Equal(t, before, tries(), "tried before %s were over", delay)
		f.Clock.Step(time.Millisecond)
		f.mustSync()
		require.Equal(t, before+1, tries(), "not tried after %s", delay)
	}
	f.expectTold()
	f.disks.prepareErr = nil
	f.Clock.Step(24 * time.Second)
	f.syncAll()
	f.expectSpec([]string{"default-disk-root=/var/lib/longhorn"}, nil)
	f.expectCondition("DefaultDisksConfig", "", "")

	f.change(func(n *longhorn.Node) { n.Spec.Disks = nil })
	f.syncAll()
	f.Clock.Step(time.Hour)
	f.syncAll()
	f.expectSpec(nil, nil) // a disk that the user removes does not return
}

func TestADefaultDiskThatIsDueGivesWayToTheUsers(t *testing.T) {
	f := dueFixture(t)
	f.disks.prepareErr = nil
	f.change(func(n *longhorn.Node) {
		n.Spec.Disks = map[string]longhorn.DiskSpec{"mine": {Path: "/mnt/b", Type: longhorn.DiskTypeFilesystem}}
	})
	f.Clock.Step(time.Hour)
	f.syncAll()
	f.expectSpec([]string{"mine=/mnt/b"}, nil)
	f.expectCondition("DefaultDisksConfig", "", "")
	f.change(func(n *longhorn.Node) { n.Spec.Disks = nil })
	f.syncAll()
	f.Clock.Step(time.Hour)
	f.syncAll()
	f.expectSpec(nil, nil)
}

func TestAnAnnotationThatNobodyAsksForIsTold(t *testing.T) {
	const name = "annotation node.longhorn.io/default-disks-config is not used: "
	const hasDisks = "the node has disks, and the annotation is read only while it has none" // at /var/lib/longhorn
	for want, tc := range map[string]struct {
		label, annotation string
		on                bool
		reason, message   string
	}{
		"the setting is off → said":                 {"config", `[{"path":"/mnt/a"}]`, false, "CreateDefaultDiskSettingOff", name + "setting create-default-disk-labeled-nodes is false; " + hasDisks},
		"the label is missing → said":               {"-", `[{"path":"/mnt/a"}]`, true, "CreateDefaultDiskLabelNotConfig", name + "label node.longhorn.io/create-default-disk is missing; " + hasDisks},
		"the label asks for another disk → said":    {"true", `[{"path":"/mnt/a"}]`, true, "CreateDefaultDiskLabelNotConfig", name + `label node.longhorn.io/create-default-disk is "true"; ` + hasDisks},
		"both ask for it, and it is done → nothing": {"config", `[{"path":"/var/lib/longhorn"}]`, true, "", ""},
		"both ask for it too late → said":           {"config", `[{"path":"/mnt/a"}]`, true, "NodeHasDisks", name + hasDisks},
		"there is none → nothing":                   {"-", "-", false, "", ""},
	} {
		t.Run(want, func(t *testing.T) {
			objs := []runtime.Object{build.ReadyNode("node-1", uuid1, cordonChecked)}
			if tc.on {
				objs = append(objs, labeledNodes())
			}
			f := newDefaultsFixture(t, asked(tc.label, tc.annotation, "-"), objs...)
			f.syncAll()
			f.expectCondition("DefaultDisksConfigUsed", tc.reason, tc.message)
		})
	}
}

func TestALabelOfNoMeaningIsTold(t *testing.T) {
	f := newDefaultsFixture(t, asked("yes", "-", "-"), labeledNodes(), build.Node("node-1", cordonChecked))
	f.syncAll()
	f.expectSpec(nil, nil)
	f.expectCondition("DefaultDisksConfig", "CreateDefaultDiskLabelInvalid",
		`label node.longhorn.io/create-default-disk: must be true, config or false, got "yes"; the node gets no disk`)
}

func TestWithTheSettingOffDisksAreNobodysBusinessButTagsAreSet(t *testing.T) {
	f := newDefaultsFixture(t, asked("config", `[{"path":"/mnt/a"}]`, `["fast"]`), build.Node("node-1", cordonChecked))
	f.syncAll()
	f.expectSpec(nil, []string{"fast"})
	assert.Empty(t, f.disks.done, "on disk")

	setting := labeledNodes()
	f.Seed(setting) // now the setting is on
	f.syncAll()
	f.expectSpec([]string{"default-disk-aa=/mnt/a"}, []string{"fast"})
}

// TestAKubernetesNodeThatIsNotSeenChangesNothing: absence from a cache proves nothing.
func TestAKubernetesNodeThatIsNotSeenChangesNothing(t *testing.T) {
	f := newDefaultsFixture(t, asked("config", `[{"path":"mnt"}]`, "-"), labeledNodes(), build.Node("node-1", cordonChecked))
	f.mustSync()
	f.Writes()
	f.CatchUp()
	require.NoError(t, f.store.KubeNodes.Replace(nil, "1000"))
	f.mustSync()
	f.ExpectWrites()
}

func TestOnRealDirectoriesNothingIsMadeForTheAnnotation(t *testing.T) {
	f := newDefaultsFixture(t, asked("config", `[{"path":"/a"},{"path":"/b"}]`, "-"), labeledNodes(), build.Node("node-1", cordonChecked))
	root := t.TempDir()
	f.Controller = f.newController(HostDisks{Root: root})
	f.syncAll()
	f.expectCondition("DefaultDisksConfig", "DefaultDisksConfigInvalid",
		`default-disks-config: disk 1, key "path", line 1 column 10: "/a" does not exist on the node`)
	entries, err := os.ReadDir(root)
	require.NoError(t, err)
	assert.Empty(t, entries)

	for _, dir := range []string{"a", "b"} {
		require.NoError(t, os.Mkdir(filepath.Join(root, dir), 0o755))
	}
	f.syncAll()
	f.expectSpec(nil, nil)
	f.expectCondition("DefaultDisksConfig", "DefaultDisksConfigInvalid",
		`default-disks-config: disk 2, key "path", line 1 column 24: "/b" is on the same file system as disk 1 ("/a"); each disk needs its own file system`)
	entries, err = os.ReadDir(filepath.Join(root, "a"))
	require.NoError(t, err)
	assert.Empty(t, entries)

	f.setKubeNode(asked("config", `[{"path":"/b","name":"mine"}]`, "-"))
	f.syncAll()
	f.expectSpec([]string{"mine=/b"}, nil)
	_, err = os.Stat(filepath.Join(root, "b", disk.ConfigFileName))
	assert.NoError(t, err)
}
