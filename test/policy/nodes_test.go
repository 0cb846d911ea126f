package policy

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apiserver/pkg/admission"
)

// nodeWith returns a Node with a spec and a status, each YAML.
func nodeWith(spec, status string) string {
	return "{apiVersion: longhorn.io/v1beta2, kind: Node, metadata: {name: 'n', namespace: storage}, spec: {" + spec + "}, status: {" + status + "}}"
}

// diskAt returns a spec with one disk.
func diskAt(path, more string) string {
	return "disks: {d: {path: '" + path + "'" + more + "}}"
}

const (
	readyDisk  = "diskStatus: {d: {scheduledReplica: {r: 1}, conditions: [{type: Ready, status: 'True'}]}}"
	awayDisk   = "diskStatus: {d: {scheduledReplica: {r: 1}, conditions: [{type: Ready, status: 'False'}]}}"
	emptyDisk  = "diskStatus: {d: {conditions: [{type: Ready, status: 'True'}]}}"
	readyNode  = "conditions: [{type: Ready, status: 'True'}], "
	goneNode   = "conditions: [{type: Ready, status: 'False', reason: KubernetesNodeGone}], "
	lackNode   = "conditions: [{type: Ready, status: 'False', reason: ManagerPodMissing}], "
	keptNode   = "conditions: [{type: Ready, status: 'False', reason: ManagerPodMissing}, {type: Removable, status: 'False', reason: LastReplica}], "
	leftNode   = "conditions: [{type: Ready, status: 'False', reason: ManagerPodMissing}, {type: Removable, status: 'True'}], "
	backNode   = "conditions: [{type: Ready, status: 'True'}, {type: Removable, status: 'True'}], "
	keepDisks  = "longhorn-keep-disks"
	diskRules  = "longhorn-disk-rules"
	notATag    = `" is not a valid tag: up to 63 letters, digits, "-", "_" or ".", with a letter or digit at both ends, and optionally a DNS name and "/" before them`
	notASystem = `" is a directory of the system; give a disk a file system of its own, mounted for example at /mnt/disk1`
	notShort   = `" must be in its shortest form, without "//", "." or ".." and without a "/" at its end`
)

// TestWhatPeopleMaySayOfANodesDisks tests for kubectl the rules that the manager has for REST.
func TestWhatPeopleMaySayOfANodesDisks(t *testing.T) {
	closed, open := diskAt("/mnt/d", ", allowScheduling: false"), diskAt("/mnt/d", ", allowScheduling: true")
	all := policies(t)
	for _, tc := range []struct {
		name, policy string
		old, object  string // empty: no object existed before, or exists afterwards
		groups       []string
		want         string
	}{
		{name: "a clean path → accepted", policy: diskRules, object: nodeWith(closed, "")},
		{name: "a path with // → refused", policy: diskRules, object: nodeWith(diskAt("/mnt//d", ""), ""), want: `spec.disks.d.path: "/mnt//d` + notShort},
		{name: "a path with .. → refused", policy: diskRules, object: nodeWith(diskAt("/mnt/../etc", ""), ""), want: `spec.disks.d.path: "/mnt/../etc` + notShort},
		{name: "a path that ends with / → refused", policy: diskRules, object: nodeWith(diskAt("/mnt/d/", ""), ""), want: `spec.disks.d.path: "/mnt/d/` + notShort},
		{name: "a directory of the system → refused", policy: diskRules, object: nodeWith(diskAt("/etc/d", ""), ""), want: `spec.disks.d.path: "/etc/d` + notASystem},
		{name: "the kubelet's → refused", policy: diskRules, object: nodeWith(diskAt("/var/lib/kubelet", ""), ""), want: `spec.disks.d.path: "/var/lib/kubelet` + notASystem},
		{name: "the root → refused", policy: diskRules, object: nodeWith(diskAt("/", ""), ""), want: `spec.disks.d.path: "/` + notASystem},
		{name: "beside the system's → accepted", policy: diskRules, object: nodeWith(diskAt("/var/lib/longhorn", ""), "")},
		{name: "a path of an older installation, unchanged → accepted", policy: diskRules, old: nodeWith(diskAt("/etc//d", ""), ""), object: nodeWith(diskAt("/etc//d", ", storageReserved: 1"), "")},
		{name: "an open disk is left out → refused", policy: diskRules, old: nodeWith(open, ""), object: nodeWith("disks: {}", ""), want: "cannot be removed while its allowScheduling is true: disable the disk first"},
		{name: "a closed disk is left out → accepted", policy: diskRules, old: nodeWith(closed, ""), object: nodeWith("disks: {}", "")},
		{name: "a tag of a disk with a blank → refused", policy: diskRules, object: nodeWith(diskAt("/mnt/d", ", tags: [ssd, 'a b']"), ""), want: `spec.disks.d.tags: "a b` + notATag},
		{name: "tags of a disk → accepted", policy: diskRules, object: nodeWith(diskAt("/mnt/d", ", tags: [ssd, example.com/fast]"), "")},
		{name: "an empty tag of a node → refused", policy: diskRules, object: nodeWith("tags: ['']", ""), want: `spec.tags: "` + notATag},
		{name: "a tag of a node that is too long → refused", policy: diskRules, object: nodeWith("tags: ["+strings.Repeat("a", 64)+"]", ""), want: `spec.tags: "` + strings.Repeat("a", 64) + notATag},
		{name: "tags of a node, as they were → accepted", policy: diskRules, old: nodeWith("tags: ['a b']", ""), object: nodeWith("tags: ['a b'], allowScheduling: true", "")},

		{name: "a ready disk with replicas is left out → refused", policy: keepDisks, old: nodeWith(closed, readyDisk), object: nodeWith("disks: {}", readyDisk), want: "first evict its replicas"},
		{name: "a ready disk with replicas gets another path → refused", policy: keepDisks, old: nodeWith(closed, readyDisk), object: nodeWith(diskAt("/mnt/e", ""), readyDisk), want: "ready and holds replicas"},
		{name: "a ready disk with replicas is closed → accepted", policy: keepDisks, old: nodeWith(open, readyDisk), object: nodeWith(closed, readyDisk)},
		{name: "a disk that is away is left out → accepted", policy: keepDisks, old: nodeWith(closed, awayDisk), object: nodeWith("disks: {}", awayDisk)},
		{name: "an empty disk is left out → accepted", policy: keepDisks, old: nodeWith(closed, emptyDisk), object: nodeWith("disks: {}", emptyDisk)},
		{name: "a node with such a disk is deleted → refused", policy: keepDisks, old: nodeWith(closed, readyDisk), want: "it is removed automatically when its Kubernetes node is removed"},
		{name: "a node with empty disks, whose Kubernetes node is there, is deleted → refused", policy: keepDisks, old: nodeWith(closed, readyNode+emptyDisk), want: "node n cannot be deleted while its Kubernetes node exists: it would be registered again"},
		{name: "a node whose daemon's pod is missing for a moment is deleted → refused", policy: keepDisks, old: nodeWith(closed, lackNode+emptyDisk), want: "node n cannot be deleted while its Kubernetes node exists"},
		{name: "a node that its daemon has left, with the last copy of a volume, is deleted → refused", policy: keepDisks, old: nodeWith(closed, keptNode+awayDisk), want: "node n cannot be deleted while its Kubernetes node exists"},
		{name: "a node that its daemon has left for good is deleted → accepted", policy: keepDisks, old: nodeWith(closed, leftNode+awayDisk)},
		{name: "such a node whose disk is called ready is deleted → refused", policy: keepDisks, old: nodeWith(closed, leftNode+readyDisk), want: "ready and holds replicas"},
		{name: "such a node whose daemon is back is deleted → refused", policy: keepDisks, old: nodeWith(closed, backNode+emptyDisk), want: "node n cannot be deleted while its Kubernetes node exists"},
		{name: "a node that the leader has not looked for is deleted → accepted", policy: keepDisks, old: nodeWith(closed, emptyDisk)},
		{name: "such a node, whose Kubernetes node is gone, is deleted → accepted", policy: keepDisks, old: nodeWith(closed, goneNode+readyDisk)},
		{name: "a node with such a disk, by the namespace's end → accepted", policy: keepDisks, old: nodeWith(closed, readyDisk), groups: []string{"system:serviceaccounts:kube-system"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := request{resource: ours("nodes"), old: tc.old, object: tc.object, user: "admin", groups: append(tc.groups, "system:authenticated")}
			switch {
			case tc.old == "":
				r.operation = admission.Create
			case tc.object == "":
				r.operation = admission.Delete
			default:
				r.operation = admission.Update
			}
			said := refusal(t, all[tc.policy], r)
			assert.Equal(t, tc.want != "", said != "", said)
			assert.Contains(t, said, tc.want)
		})
	}
}

// TestASettingIsEmptiedAndNotDeleted checks that users may delete only a setting that the release does not know.
func TestASettingIsEmptiedAndNotDeleted(t *testing.T) {
	setting := func(condition string) string {
		return "{apiVersion: longhorn.io/v1beta2, kind: Setting, metadata: {name: s, namespace: storage}, value: '1', status: {conditions: [" + condition + "]}}"
	}
	const refused = `setting s must not be deleted; set its value to "" to get the default`
	p := policies(t)["longhorn-keep-settings"]
	for condition, want := range map[string]string{
		"": refused, "{type: Valid, status: 'True'}": refused, "{type: Valid, status: 'False', reason: InvalidValue}": refused,
		"{type: Valid, status: 'False', reason: UnknownName}": "",
	} {
		t.Run(condition, func(t *testing.T) {
			assert.Equal(t, want, refusal(t, p, request{operation: admission.Delete, resource: ours("settings"), old: setting(condition), user: "admin", groups: []string{"system:authenticated"}}))
		})
	}
	assert.Empty(t, refusal(t, p, request{
		operation: admission.Delete, resource: ours("settings"), old: setting(""), user: "system:serviceaccount:kube-system:namespace-controller", groups: []string{"system:serviceaccounts:kube-system"},
	}), "by the namespace's end")
}
