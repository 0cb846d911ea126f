package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/test/e2e/cluster"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// definitions installs deploy/longhorn.yaml on the API server that has no nodes, and waits until the API server knows
// all of it. Every test may call it.
func definitions(ctx context.Context, t *testing.T, c *cluster.Cluster) {
	t.Helper()
	c.Must(ctx, t, "apply", "-f", filepath.Join(apiOnly.options.Root, "deploy/longhorn.yaml"))
	c.Must(ctx, t, "wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
}

// object returns the manifest of one of our objects. rest is YAML below the metadata.
func object(kind, name, rest string) string {
	return fmt.Sprintf("apiVersion: longhorn.io/v1beta2\nkind: %s\nmetadata: {name: %s, namespace: %s}\n%s\n", kind, name, types.Namespace, rest)
}

func TestAPIServerRefusesWhatMakesNoSense(t *testing.T) {
	ctx, c := apiOnly.get(t, schema)
	definitions(ctx, t, c)
	long := strings.Repeat("a", 41)
	cases := []struct {
		name     string
		manifest string
		refusal  string // part of the message; empty: accepted
	}{
		{"a volume with all that it may have → accepted", object("Volume", "v-full", `spec: {size: "10737418240", numberOfReplicas: 3, diskSelector: [ssd], nodeSelector: [storage], staleReplicaTimeout: 30, accessMode: rwop, dataLocality: best-effort, replicaSoftAntiAffinity: enabled, replicaZoneSoftAntiAffinity: disabled, replicaDiskSoftAntiAffinity: disabled, replicaAutoBalance: least-effort}`), ""},
		{"a volume with nothing but a name → refused: it must say its size", object("Volume", "v-empty", ``), "spec"},
		{"a volume without a size → refused", object("Volume", "v-empty", `spec: {numberOfReplicas: 1}`), "spec.size"},
		{"a volume with nothing but a size → accepted, defaults filled in", object("Volume", "v-empty", `spec: {size: "2097152"}`), ""},
		{"size as a number → refused: sizes are strings on the wire", object("Volume", "v-1", `spec: {size: 1073741824}`), "spec.size"},
		{"size with a unit → refused", object("Volume", "v-1", `spec: {size: 10Gi}`), "spec.size"},
		{"size zero → refused", object("Volume", "v-1", `spec: {size: "0"}`), "size must be greater than zero"},
		{"negative size → refused", object("Volume", "v-1", `spec: {size: "-2097152"}`), "size must be greater than zero"},
		{"size that overflows 64 bits → refused", object("Volume", "v-1", `spec: {size: "99999999999999999999"}`), "size"},
		{"the largest size that can be rounded up → accepted", object("Volume", "v-largest", `spec: {size: "9223372036852678656"}`), ""},
		{"one byte more → refused", object("Volume", "v-1", `spec: {size: "9223372036852678657"}`), "size must be at most 9223372036852678656 bytes"},
		{"the largest number of 64 bits → refused", object("Volume", "v-1", `spec: {size: "9223372036854775807"}`), "size must be at most 9223372036852678656 bytes"},
		{"name of 40 characters → accepted", object("Volume", long[:40], `spec: {size: "2097152"}`), ""},
		{"name of 41 characters → refused", object("Volume", long, `spec: {size: "2097152"}`), "the length of metadata.name should be less than or equal to 40"},
		{"name with a dot → refused", object("Volume", "a.b", `spec: {size: "2097152"}`), "metadata.name must be a DNS-1123 label"},
		{"21 replicas → refused", object("Volume", "v-1", `spec: {size: "2097152", numberOfReplicas: 21}`), "numberOfReplicas"},
		{"-1 replicas → refused", object("Volume", "v-1", `spec: {size: "2097152", numberOfReplicas: -1}`), "numberOfReplicas"},
		{"access mode that is not offered → refused", object("Volume", "v-1", `spec: {size: "2097152", accessMode: rwxp}`), "accessMode"},
		{"no data locality → accepted", object("Volume", "v-nowhere", `spec: {size: "2097152", dataLocality: ""}`), ""},
		{"strict-local, by default with one replica → accepted", object("Volume", "v-strict", `spec: {size: "2097152", dataLocality: strict-local}`), ""},
		{"strict-local with one replica → accepted", object("Volume", "v-strict-one", `spec: {size: "2097152", dataLocality: strict-local, numberOfReplicas: 1}`), ""},
		{"strict-local with two replicas → refused", object("Volume", "v-1", `spec: {size: "2097152", dataLocality: strict-local, numberOfReplicas: 2}`), "numberOfReplicas must be 1 with dataLocality strict-local"},
		{"data locality by a word that is none → refused", object("Volume", "v-1", `spec: {size: "2097152", dataLocality: near}`), "dataLocality"},
		{"anti-affinity by a word that is none → refused", object("Volume", "v-1", `spec: {size: "2097152", replicaZoneSoftAntiAffinity: soft}`), "replicaZoneSoftAntiAffinity"},
		{"data engine v2 → refused", object("Volume", "v-1", `spec: {size: "2097152", dataEngine: v2}`), "dataEngine"},
		{"frontend that is not offered → refused", object("Volume", "v-1", `spec: {size: "2097152", frontend: iscsi}`), "frontend"},
		{"a known setting → accepted", object("Setting", "default-replica-count", `value: "2"`), ""},
		{"a setting of another release → accepted", object("Setting", "setting-of-another-release", `value: high`), ""},
		{"a setting longer than 4096 characters → refused", object("Setting", "default-data-path", `value: /`+strings.Repeat("a", 4096)), "value"},
		{"a node with a disk → accepted", object("Node", "n-1", `spec: {name: n-1, allowScheduling: true, disks: {d: {path: /mnt/disk, allowScheduling: true, storageReserved: 1024}}}`), ""},
		{"disk with a relative path → refused", object("Node", "n-2", `spec: {disks: {d: {path: mnt/disk}}}`), "spec.disks.d.path"},
		{"disk type that is not offered → refused", object("Node", "n-2", `spec: {disks: {d: {path: /mnt/disk, diskType: block}}}`), "diskType"},
		{"negative reserve → refused", object("Node", "n-2", `spec: {disks: {d: {path: /mnt/disk, storageReserved: -1}}}`), "storageReserved"},
		{"a disk both evicted and scheduled to → refused", object("Node", "n-2", `spec: {disks: {d: {path: /mnt/disk, allowScheduling: true, evictionRequested: true}}}`), "evictionRequested must not be true while allowScheduling is true"},
		{"a node both evicted and scheduled to → refused", object("Node", "n-2", `spec: {allowScheduling: true, evictionRequested: true}`), "evictionRequested must not be true while allowScheduling is true"},
		{"a ticket → accepted", object("VolumeAttachment", "va-1", `spec: {volume: va-1, attachmentTickets: {a: {id: a, type: longhorn-api, nodeID: n-1}}}`), ""},
		{"a ticket under another key than its id → refused", object("VolumeAttachment", "va-2", `spec: {volume: va-2, attachmentTickets: {a: {id: b, type: longhorn-api, nodeID: n-1}}}`), "a ticket's id must equal its key"},
		{"a ticket of a holder that does not exist → refused", object("VolumeAttachment", "va-2", `spec: {volume: va-2, attachmentTickets: {a: {id: a, type: backup, nodeID: n-1}}}`), "type"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			check(t, c.Apply(ctx, tc.manifest), tc.refusal)
		})
	}
}

// TestAPIServerRefusesChanges checks the fields that may not change after the creation.
func TestAPIServerRefusesChanges(t *testing.T) {
	ctx, c := apiOnly.get(t, schema)
	definitions(ctx, t, c)
	cases := []struct {
		name, before, after, refusal string
	}{
		{"a volume shrinks → refused", object("Volume", "c-1", `spec: {size: "4194304"}`), object("Volume", "c-1", `spec: {size: "2097152"}`), "size must not shrink"},
		{"a volume grows before its size is recorded → refused", object("Volume", "c-2", `spec: {size: "4194304"}`), object("Volume", "c-2", `spec: {size: "8388608"}`), "size cannot grow"},
		{"an odd size is rounded up → accepted", object("Volume", "c-3", `spec: {size: "4194305"}`), object("Volume", "c-3", `spec: {size: "6291456"}`), ""},
		{
			"an attachment's volume changes → refused", object("VolumeAttachment", "c-4", `spec: {volume: c-4}`),
			object("VolumeAttachment", "c-4", `spec: {volume: c-5}`), "volume is immutable",
		},
		{
			"a replica's volume changes → refused", object("Replica", "c-5", `spec: {volumeName: c-5, volumeSize: "2097152"}`),
			object("Replica", "c-5", `spec: {volumeName: c-6, volumeSize: "2097152"}`), "volumeName is immutable",
		},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			require.NoError(t, c.Apply(ctx, tc.before))
			check(t, c.Apply(ctx, tc.after), tc.refusal)
		})
	}
}

// TestAPIServerKnowsWhenAnExpansionCanBeTakenBack: the size may grow once it is recorded, and must not shrink below the
// recorded size.
func TestAPIServerKnowsWhenAnExpansionCanBeTakenBack(t *testing.T) {
	ctx, c := apiOnly.get(t, schema)
	definitions(ctx, t, c)
	size := func(mib int) string { return object("Volume", "c-grows", fmt.Sprintf(`spec: {size: "%d"}`, mib<<20)) }
	record := func(mib int) {
		c.Must(ctx, t, "patch", "volumes.longhorn.io/c-grows", "-n", types.Namespace, "--subresource=status", "--type=merge", "-p", fmt.Sprintf(`{"status":{"size":"%d"}}`, mib<<20))
	}
	require.NoError(t, c.Apply(ctx, size(4)))
	check(t, c.Apply(ctx, size(8)), "size cannot grow yet")
	record(4)
	check(t, c.Apply(ctx, size(8)), "")
	check(t, c.Apply(ctx, size(6)), "")
	check(t, c.Apply(ctx, size(2)), "size must not shrink")
	check(t, c.Apply(ctx, size(8)), "")
	record(8)
	check(t, c.Apply(ctx, size(4)), "size must not shrink")
	check(t, c.Apply(ctx, size(16)), "")
	check(t, c.Apply(ctx, size(8)), "")
}

func TestDefaultsAreFilledIn(t *testing.T) {
	ctx, c := apiOnly.get(t, schema)
	definitions(ctx, t, c)
	require.NoError(t, c.Apply(ctx, object("Volume", "d-1", `spec: {size: "2097152"}`)))
	v, err := c.Longhorn.LonghornV1beta2().Volumes(types.Namespace).Get(ctx, "d-1", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Empty(t, v.Spec.DataLocality, "the volume controller fills it in, by the setting")
	got := fmt.Sprintf("%d %s %s %s %s %s %s %d", v.Spec.Size, v.Spec.Frontend, v.Spec.AccessMode,
		v.Spec.ReplicaSoftAntiAffinity, v.Spec.ReplicaZoneSoftAntiAffinity, v.Spec.ReplicaDiskSoftAntiAffinity, v.Spec.DataEngine, v.Spec.StaleReplicaTimeout)
	assert.Equal(t, "2097152 blockdev rwo ignored ignored ignored v1 2880", got)
}

// TestSelectableFields: a daemon can watch the objects of its node and no others.
func TestSelectableFields(t *testing.T) {
	ctx, c := apiOnly.get(t, schema)
	definitions(ctx, t, c)
	for _, node := range []string{"here", "there"} {
		for _, manifest := range []string{
			object("Replica", "s-r-"+node, fmt.Sprintf(`spec: {volumeName: s, volumeSize: "2097152", nodeID: %s}`, node)),
			object("Engine", "s-e-"+node, fmt.Sprintf(`spec: {volumeName: s, volumeSize: "2097152", nodeID: %s}`, node)),
			object("InstanceManager", "s-i-"+node, fmt.Sprintf(`spec: {nodeID: %s, image: x}`, node)),
		} {
			require.NoError(t, c.Apply(ctx, manifest))
		}
	}
	for kind, want := range map[string]string{"replicas": "s-r-here", "engines": "s-e-here", "instancemanagers": "s-i-here"} {
		got := c.Must(ctx, t, "-n", types.Namespace, "get", kind+".longhorn.io", "--field-selector", "spec.nodeID=here", "-o", "jsonpath={.items[*].metadata.name}")
		assert.Equal(t, want, got, "%s of node here", kind)
	}
}

func TestSettingsCannotBeDeleted(t *testing.T) {
	ctx, c := apiOnly.get(t, schema)
	definitions(ctx, t, c)
	require.NoError(t, c.Apply(ctx, object("Setting", "default-data-path", `value: /var/lib/longhorn`)))
	cluster.Eventually(ctx, t, 10*time.Second, "the policy about settings is known to the API server", func(ctx context.Context) error {
		_, err := c.Kubectl(ctx, "-n", types.Namespace, "delete", "settings.longhorn.io", "default-data-path", "--dry-run=server")
		if err == nil {
			return fmt.Errorf("the deletion would have been allowed")
		}
		return nil
	})
	_, err := c.Kubectl(ctx, "-n", types.Namespace, "delete", "settings.longhorn.io", "default-data-path")
	check(t, err, `setting default-data-path must not be deleted; set its value to "" to get the default`)

	require.NoError(t, c.Apply(ctx, object("Setting", "defualt-data-path", `value: /mnt`)))
	c.Must(ctx, t, "-n", types.Namespace, "patch", "settings.longhorn.io", "defualt-data-path", "--subresource=status", "--type=merge",
		"-p", `{"status":{"applied":false,"conditions":[{"type":"Valid","status":"False","reason":"UnknownName"}]}}`)
	_, err = c.Kubectl(ctx, "-n", types.Namespace, "delete", "settings.longhorn.io", "defualt-data-path")
	check(t, err, "")
}

// check fails the test unless err is as expected: nil, or an error that contains the refusal.
func check(t *testing.T, err error, refusal string) {
	t.Helper()
	if refusal == "" {
		assert.NoError(t, err)
	} else {
		assert.ErrorContains(t, err, refusal)
	}
}
