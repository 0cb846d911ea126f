package policy

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// of returns an object with a name, a spec and a status, both YAML.
func of(name, spec, status string) string {
	return "{metadata: {name: '" + name + "'}, spec: {" + spec + "}, status: {" + status + "}}"
}

// ofSize returns a volume with a size and a status.
func ofSize(size, status string) string {
	return of("v", "numberOfReplicas: 3, size: '"+size+"'", status)
}

// local returns a volume with a data locality.
func local(locality, more, status string) string {
	return of("v", "size: '2097152', numberOfReplicas: 1, dataLocality: '"+locality+"'"+more, status)
}

// mode returns a volume with an access mode.
func mode(mode, more, status string) string {
	return of("v", "size: '2097152', numberOfReplicas: 1, accessMode: "+mode+more, status)
}

// digit returns a volume with an access mode and a name that starts with a digit.
func digit(mode, status string) string {
	return of("2024-media", "size: '2097152', numberOfReplicas: 1, accessMode: "+mode, status)
}

// crdCase is a request, and whether the rule refuses it.
type crdCase struct {
	rule, name  string
	old, object string // no old: the object is created
	refused     bool
}

const (
	shrinks    = "Volume : size must not shrink: only an expansion that has not started can be canceled, down to status.size; after it has started, replicas may have the new size"
	growsSoon  = "Volume : size cannot grow yet: status.size is not recorded; wait until the volume controller of this release has recorded it"
	longName   = "Volume : the length of metadata.name should be less than or equal to 40"
	isLabel    = "Volume : metadata.name must be a DNS-1123 label"
	isSome     = "Volume spec.size: size must be greater than zero"
	isGiven    = "Volume spec.size: size is missing: enter the number of bytes as a string, for example \"10737418240\" for 10 GiB"
	isMost     = "Volume spec.size: size must be at most 9223372036852678656 bytes"
	noneLater  = "Volume spec.numberOfReplicas: numberOfReplicas must be 1 to 20: 0 is allowed only in a new volume, where it means the value of the setting default-replica-count"
	notShared  = "Volume spec.accessMode: accessMode must not be rwx with dataLocality strict-local: a shared volume is used on many nodes"
	letter     = "Volume : metadata.name must start with a letter if accessMode is rwx: the Service of a shared volume has the volume's name"
	letterToo  = "Volume : accessMode cannot change to rwx: metadata.name must start with a letter, because the Service of a shared volume has the volume's name"
	modeAtRest = "Volume : accessMode can change to or from rwx only while the volume is detached: spec.nodeID is empty and status.state is detached"
	oneLocal   = "Volume spec.numberOfReplicas: numberOfReplicas must be 1 with dataLocality strict-local: the one replica is on the node where the volume is attached"
	atRest     = "Volume : dataLocality can change to or from strict-local only while the volume is detached: spec.nodeID is empty and status.state is detached"
	nodeWay    = "Node spec: evictionRequested must not be true while allowScheduling is true"
	diskWay    = "Node spec.disks.*: evictionRequested must not be true while allowScheduling is true"
	engineOf   = "Engine spec.volumeName: volumeName is immutable"
	replicaOf  = "Replica spec.volumeName: volumeName is immutable"
	managerOn  = "InstanceManager spec.nodeID: nodeID is immutable"
	attaches   = "VolumeAttachment spec.volume: volume is immutable"
	snapshotOf = "Snapshot spec.volume: volume cannot be changed: create another snapshot"
	noEquals   = "Snapshot spec.labels: a label must not contain '='"
	ticketID   = "VolumeAttachment spec.attachmentTickets: a ticket's id must equal its key"

	sector4M, sector2M = "4194304", "2097152"
)

// crdCases has, for every rule, requests that it accepts and requests that it refuses.
var crdCases = []crdCase{
	{rule: shrinks, name: "the same size → accepted", old: ofSize(sector4M, ""), object: ofSize(sector4M, "")},
	{rule: shrinks, name: "smaller → refused", old: ofSize(sector4M, ""), object: ofSize(sector2M, ""), refused: true},
	{rule: shrinks, name: "smaller, the status says 0 → refused", old: ofSize(sector4M, "size: '0'"), object: ofSize(sector2M, ""), refused: true},
	{rule: shrinks, name: "an expansion that has not begun, taken back to what is → accepted", old: ofSize(sector4M, "size: '2097152'"), object: ofSize(sector2M, "")},
	{rule: shrinks, name: "below what is → refused", old: ofSize(sector4M, "size: '4194304'"), object: ofSize(sector2M, ""), refused: true},

	{rule: growsSoon, name: "larger, what is is recorded → accepted", old: ofSize(sector2M, "size: '2097152'"), object: ofSize(sector4M, "")},
	{rule: growsSoon, name: "larger, not recorded → refused", old: ofSize(sector2M, ""), object: ofSize(sector4M, ""), refused: true},
	{rule: growsSoon, name: "larger, recorded as 0 → refused", old: ofSize(sector2M, "size: '0'"), object: ofSize(sector4M, ""), refused: true},
	{rule: growsSoon, name: "a size that is no whole number of blocks is rounded up → accepted", old: ofSize("2097153", ""), object: ofSize(sector4M, "")},

	{rule: longName, name: "40 characters → accepted", object: of(strings.Repeat("a", 40), "numberOfReplicas: 3, size: '2097152'", "")},
	{rule: longName, name: "41 characters → refused", object: of(strings.Repeat("a", 41), "numberOfReplicas: 3, size: '2097152'", ""), refused: true},
	{rule: isLabel, name: "letters, digits and - → accepted", object: of("pvc-0a", "numberOfReplicas: 3, size: '2097152'", "")},
	{rule: isLabel, name: "one letter → accepted", object: of("v", "numberOfReplicas: 3, size: '2097152'", "")},
	{rule: isLabel, name: "a dot, which the API server allows → refused", object: of("a.b", "numberOfReplicas: 3, size: '2097152'", ""), refused: true},

	{rule: isGiven, name: "a size → accepted", object: of("v", "size: '2097152'", "")},
	{rule: isGiven, name: "no size → refused", object: of("v", "numberOfReplicas: 3", ""), refused: true},
	{rule: isGiven, name: "a size that is taken away → refused", old: ofSize(sector2M, "size: '2097152'"), object: of("v", "numberOfReplicas: 3", "size: '2097152'"), refused: true},
	{rule: isGiven, name: "something else of a volume that never had one → accepted", old: of("v", "staleReplicaTimeout: 4", ""), object: of("v", "staleReplicaTimeout: 4", "state: deleting")},
	{rule: isSome, name: "1 byte → accepted", object: ofSize("1", "")},
	{rule: isSome, name: "0 → refused", object: ofSize("0", ""), refused: true},
	{rule: isSome, name: "less than 0 → refused", object: ofSize("-1", ""), refused: true},
	{rule: isMost, name: "the largest whole number of blocks → accepted", object: ofSize("9223372036852678656", "")},
	{rule: isMost, name: "more → refused", object: ofSize("9223372036852678657", ""), refused: true},

	{rule: snapshotOf, name: "the same volume → accepted", old: of("s", "volume: v", ""), object: of("s", "volume: v, createSnapshot: true", "")},
	{rule: snapshotOf, name: "another volume → refused", old: of("s", "volume: v", ""), object: of("s", "volume: w", ""), refused: true},
	{rule: noEquals, name: "labels → accepted", object: of("s1", "volume: vol-1, createSnapshot: true, labels: {app: db}", "")},
	{rule: noEquals, name: "no labels, as null → accepted", object: of("s1", "volume: vol-1, createSnapshot: true, labels: null", "")},
	{rule: noEquals, name: "= in a key → refused", object: of("s1", "volume: vol-1, labels: {'a=b': c}", ""), refused: true},
	{rule: noEquals, name: "= in a value → refused", object: of("s1", "volume: vol-1, labels: {a: 'b=c'}", ""), refused: true},

	{rule: oneLocal, name: "strict-local with one replica → accepted", object: local("strict-local", "", "")},
	{rule: oneLocal, name: "strict-local, the number left to us → accepted", object: of("v", "size: '2097152', numberOfReplicas: 0, dataLocality: strict-local", "")},
	{rule: oneLocal, name: "best-effort with three → accepted", object: of("v", "size: '2097152', numberOfReplicas: 3, dataLocality: best-effort", "")},
	{rule: oneLocal, name: "strict-local with two → refused", object: of("v", "size: '2097152', numberOfReplicas: 2, dataLocality: strict-local", ""), refused: true},

	{rule: noneLater, name: "0 in a new volume → accepted", object: of("v", "size: '2097152', numberOfReplicas: 0", "")},
	{rule: noneLater, name: "0, which the controller replaces → accepted", old: of("v", "size: '2097152', numberOfReplicas: 0", ""), object: ofSize(sector2M, "")},
	{rule: noneLater, name: "something else of a volume that has 0 → accepted", old: of("v", "size: '2097152', numberOfReplicas: 0", ""), object: of("v", "size: '2097152', numberOfReplicas: 0, staleReplicaTimeout: 5", "")},
	{rule: noneLater, name: "3 to 1 → accepted", old: ofSize(sector2M, ""), object: of("v", "size: '2097152', numberOfReplicas: 1", "")},
	{rule: noneLater, name: "3 to 0 → refused", old: ofSize(sector2M, ""), object: of("v", "size: '2097152', numberOfReplicas: 0", ""), refused: true},

	{rule: notShared, name: "shared, best-effort → accepted", object: of("v", "size: '2097152', accessMode: rwx, dataLocality: best-effort", "")},
	{rule: notShared, name: "shared, no locality → accepted", object: of("v", "size: '2097152', accessMode: rwx", "")},
	{rule: notShared, name: "strict-local, of one node → accepted", object: of("v", "size: '2097152', numberOfReplicas: 1, accessMode: rwop, dataLocality: strict-local", "")},
	{rule: notShared, name: "shared and strict-local → refused", object: of("v", "size: '2097152', numberOfReplicas: 1, accessMode: rwx, dataLocality: strict-local", ""), refused: true},

	{rule: letter, name: "shared, begins with a letter → accepted", object: of("media-2024", "size: '2097152', numberOfReplicas: 1, accessMode: rwx", "")},
	{rule: letter, name: "of one node, begins with a digit → accepted", object: of("2024-media", "size: '2097152', numberOfReplicas: 1", "")},
	{rule: letter, name: "shared, begins with a digit → refused", object: of("2024-media", "size: '2097152', numberOfReplicas: 1, accessMode: rwx", ""), refused: true},
	{rule: letter, name: "one that an earlier release let in, something else of it → accepted", old: digit("rwx", "state: detached"), object: of("2024-media", "size: '2097152', numberOfReplicas: 2, accessMode: rwx", "state: detached")},
	{rule: letter, name: "one that an earlier release let in, from rwx → accepted", old: digit("rwx", "state: detached"), object: digit("rwo", "state: detached")},
	{rule: letterToo, name: "stays of one node → accepted", old: digit("rwo", "state: detached"), object: digit("rwop", "state: detached")},
	{rule: letterToo, name: "to rwx, begins with a digit → refused", old: digit("rwo", "state: detached"), object: digit("rwx", "state: detached"), refused: true},

	{rule: modeAtRest, name: "to rwx, detached → accepted", old: mode("rwo", "", "state: detached"), object: mode("rwx", "", "state: detached")},
	{rule: modeAtRest, name: "from rwx, detached → accepted", old: mode("rwx", "", "state: detached"), object: mode("rwop", "", "state: detached")},
	{rule: modeAtRest, name: "to rwx, never seen by a controller → accepted", old: mode("rwo", "", ""), object: mode("rwx", "", "")},
	{rule: modeAtRest, name: "rwo to rwop, attached → accepted", old: mode("rwo", ", nodeID: node-1", "state: attached"), object: mode("rwop", ", nodeID: node-1", "state: attached")},
	{rule: modeAtRest, name: "something else of a shared one, attached → accepted", old: mode("rwx", ", nodeID: node-1", "state: attached"), object: mode("rwx", ", nodeID: node-1, staleReplicaTimeout: 5", "state: attached")},
	{rule: modeAtRest, name: "to rwx, attached → refused", old: mode("rwo", ", nodeID: node-1", "state: attached"), object: mode("rwx", ", nodeID: node-1", "state: attached"), refused: true},
	{rule: modeAtRest, name: "to rwx, about to be attached → refused", old: mode("rwo", ", nodeID: node-1", "state: detached"), object: mode("rwx", ", nodeID: node-1", "state: detached"), refused: true},
	{rule: modeAtRest, name: "from rwx, attached → refused", old: mode("rwx", ", nodeID: node-1", "state: attached"), object: mode("rwo", ", nodeID: node-1", "state: attached"), refused: true},

	{rule: atRest, name: "to strict-local, detached → accepted", old: local("best-effort", "", "state: detached"), object: local("strict-local", "", "state: detached")},
	{rule: atRest, name: "from strict-local, detached → accepted", old: local("strict-local", "", "state: detached"), object: local("", "", "state: detached")},
	{rule: atRest, name: "to strict-local, never seen by a controller → accepted", old: local("", "", ""), object: local("strict-local", "", "")},
	{rule: atRest, name: "between the others, attached → accepted", old: local("best-effort", ", nodeID: node-1", "state: attached"), object: local("disabled", ", nodeID: node-1", "state: attached")},
	{rule: atRest, name: "something else of a strict-local one, attached → accepted", old: local("strict-local", ", nodeID: node-1", "state: attached"), object: local("strict-local", ", nodeID: node-1, staleReplicaTimeout: 5", "state: attached")},
	{rule: atRest, name: "to strict-local, attached → refused", old: local("best-effort", ", nodeID: node-1", "state: attached"), object: local("strict-local", ", nodeID: node-1", "state: attached"), refused: true},
	{rule: atRest, name: "to strict-local, about to be attached → refused", old: local("", ", nodeID: node-1", "state: detached"), object: local("strict-local", ", nodeID: node-1", "state: detached"), refused: true},
	{rule: atRest, name: "from strict-local, attached → refused", old: local("strict-local", ", nodeID: node-1", "state: attached"), object: local("disabled", ", nodeID: node-1", "state: attached"), refused: true},

	{rule: nodeWay, name: "evicted and closed → accepted", object: of("n", "evictionRequested: true, allowScheduling: false", "")},
	{rule: nodeWay, name: "open, not evicted → accepted", object: of("n", "evictionRequested: false, allowScheduling: true", "")},
	{rule: nodeWay, name: "neither is said → accepted", object: of("n", "", "")},
	{rule: nodeWay, name: "evicted and open → refused", object: of("n", "evictionRequested: true, allowScheduling: true", ""), refused: true},
	{rule: diskWay, name: "evicted and closed → accepted", object: of("n", "disks: {d: {path: /mnt/d, evictionRequested: true, allowScheduling: false}}", "")},
	{rule: diskWay, name: "open, not evicted → accepted", object: of("n", "disks: {d: {path: /mnt/d, evictionRequested: false, allowScheduling: true}}", "")},
	{rule: diskWay, name: "neither is said → accepted", object: of("n", "disks: {d: {path: /mnt/d}}", "")},
	{rule: diskWay, name: "evicted and open → refused", object: of("n", "disks: {c: {path: /mnt/c}, d: {path: /mnt/d, evictionRequested: true, allowScheduling: true}}", ""), refused: true},

	{rule: engineOf, name: "the same volume → accepted", old: of("e", "volumeName: v, volumeSize: '1'", ""), object: of("e", "volumeName: v, volumeSize: '2'", "")},
	{rule: engineOf, name: "another volume → refused", old: of("e", "volumeName: v, volumeSize: '1'", ""), object: of("e", "volumeName: w, volumeSize: '1'", ""), refused: true},
	{rule: replicaOf, name: "the same volume → accepted", old: of("r", "volumeName: v, volumeSize: '1'", ""), object: of("r", "volumeName: v, volumeSize: '2'", "")},
	{rule: replicaOf, name: "another volume → refused", old: of("r", "volumeName: v, volumeSize: '1'", ""), object: of("r", "volumeName: w, volumeSize: '1'", ""), refused: true},
	{rule: managerOn, name: "the same node → accepted", old: of("i", "nodeID: node-1, image: a", ""), object: of("i", "nodeID: node-1, image: a, dataEngine: v1", "")},
	{rule: managerOn, name: "another node → refused", old: of("i", "image: a, nodeID: node-1", ""), object: of("i", "image: a, nodeID: node-2", ""), refused: true},

	{rule: attaches, name: "the same volume → accepted", old: of("v", "volume: v", ""), object: of("v", "volume: v, attachmentTickets: {a: {id: a, nodeID: node-1, type: csi-attacher}}", "")},
	{rule: attaches, name: "another volume → refused", old: of("v", "volume: v", ""), object: of("v", "volume: w", ""), refused: true},
	{rule: ticketID, name: "ids that are the keys → accepted", object: of("v", "volume: v, attachmentTickets: {a: {id: a, nodeID: node-1, type: csi-attacher}, b: {id: b, nodeID: node-1, type: csi-attacher}}", "")},
	{rule: ticketID, name: "one that is not → refused", object: of("v", "volume: v, attachmentTickets: {a: {id: a, nodeID: node-1, type: csi-attacher}, b: {id: c, nodeID: node-1, type: csi-attacher}}", ""), refused: true},
}

// TestTheRulesOfTheDefinitions passes every object that is checked by its schema, and not by a policy, to the API
// server's own code. A refusal must come only from the expected rule, with its message.
func TestTheRulesOfTheDefinitions(t *testing.T) {
	all := definitions(t)
	for _, tc := range crdCases {
		kind, _, _ := strings.Cut(tc.rule, " ")
		t.Run(tc.rule+": "+tc.name, func(t *testing.T) {
			require.Contains(t, all, kind)
			var got []string
			for _, e := range all[kind].refusals(t, tc.old, tc.object) {
				got = append(got, ruleOf(kind, e))
			}
			if tc.refused {
				assert.Equal(t, []string{tc.rule}, got)
			} else {
				assert.Empty(t, got)
			}
		})
	}
}

// TestAFinalizerIsTakenOffWhateverTheObjectSays checks that an object that an older schema accepted can still be
// deleted.
func TestAFinalizerIsTakenOffWhateverTheObjectSays(t *testing.T) {
	for kind, spec := range map[string]string{
		"Volume": "size: '0'", "Node": "evictionRequested: true, allowScheduling: true", "VolumeAttachment": "volume: v, attachmentTickets: {a: {id: b, nodeID: node-1}}",
	} {
		text := "{metadata: {name: " + strings.Repeat("a", 20) + "%s}, spec: {" + spec + "}}"
		assert.Empty(t, definitions(t)[kind].refusals(t, strings.Replace(text, "%s", ", finalizers: [longhorn.io]", 1), strings.Replace(text, "%s", "", 1)), kind)
	}
}

// TestASizeThatIsNoNumberIsRefused checks sizes that are not numbers. Either the schema refuses such a size, or the
// rules cannot be evaluated. In both cases the size is not accepted.
func TestASizeThatIsNoNumberIsRefused(t *testing.T) {
	for _, size := range []string{"", "one", "1Gi", "1.5", "9999999999999999999", "99999999999999999999"} {
		assert.NotEmpty(t, definitions(t)["Volume"].refusals(t, "", ofSize(size, "")), size)
		assert.NotEmpty(t, definitions(t)["Volume"].refusals(t, ofSize(sector2M, "size: '2097152'"), ofSize(size, "")), size)
	}
}

// TestASizeWithAUnitIsRefusedOnce checks that the rules that read the number do not add their own errors.
func TestASizeWithAUnitIsRefusedOnce(t *testing.T) {
	errs := definitions(t)["Volume"].refusals(t, "", ofSize("10Gi", ""))
	require.Len(t, errs, 1)
	assert.Contains(t, errs[0].Error(), "spec.size")
}

// TestASnapshotNeedsAVolume: no controller could say what it is a snapshot of.
func TestASnapshotNeedsAVolume(t *testing.T) {
	for name, spec := range map[string]string{"none": "createSnapshot: true", "an empty name": "volume: ''"} {
		t.Run(name, func(t *testing.T) {
			assert.NotEmpty(t, definitions(t)["Snapshot"].refusals(t, "", of("s", spec, "")))
		})
	}
}

// TestALineKeepsLargeNonces: a reader of JSON with floating-point numbers keeps integers below 2^53.
func TestALineKeepsLargeNonces(t *testing.T) {
	line := "line: {counter: 9, points: [{number: 8, nonce: 9007199254740991, state: ready, name: s1}], reverted: {to: 4, by: 6}}"
	assert.Empty(t, definitions(t)["Engine"].refusals(t, of("e", "volumeName: v", ""), of("e", "volumeName: v", line)))
	stored := definitions(t)["Engine"].stored(t, of("e", "volumeName: v", line))
	points := stored.Object["status"].(map[string]any)["line"].(map[string]any)["points"].([]any)
	assert.Equal(t, int64(9007199254740991), points[0].(map[string]any)["nonce"])
}

func TestAVolumeWithoutASpecIsRefused(t *testing.T) {
	errs := definitions(t)["Volume"].refusals(t, "", "{metadata: {name: v}}")
	require.NotEmpty(t, errs)
	assert.Equal(t, "spec: Required value", errs[0].Error())
}

// TestEveryRuleHasCases checks that each rule has an accepted case and a refused case. If the rule compares with the
// old object, both cases are updates.
func TestEveryRuleHasCases(t *testing.T) {
	found := 0
	for kind, d := range definitions(t) {
		for what, rule := range rulesOf(kind, d.schema, "") {
			found++
			passes, refuses := false, false
			for _, tc := range crdCases {
				if tc.rule != what || strings.Contains(rule.Rule, "oldSelf") && tc.old == "" {
					continue
				}
				passes, refuses = passes || !tc.refused, refuses || tc.refused
			}
			assert.True(t, passes, "%s: no case of what it lets through", what)
			assert.True(t, refuses, "%s: no case of what it refuses", what)
		}
	}
	rules := map[string]bool{}
	for _, tc := range crdCases {
		rules[tc.rule] = true
	}
	assert.Len(t, rules, found, "cases of a rule that is no more, or two rules with one name")
}
