package disk

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

const uuidB = "b0b0b0b0-55d0-4a8b-9a0e-0c4f5a1d2b31"

// fixture is one disk of a match. The device on which it was scanned stands for its place.
type fixture struct {
	recorded    string // UUID in the status
	ready       bool
	device      uint64
	file        string // UUID in the file
	fileErr     error  // instead of a file
	scanErr     error  // instead of a record
	noRecord    bool
	oldPath     bool // scanned before the path changed
	replicasErr error
	onVolume    string
	readOnly    bool
	fsType      string

	mayLieOnVolume bool
}

func matchFixtures(disks map[string]fixture) map[string]Verdict {
	spec, prev, records := map[string]SpecDisk{}, map[string]Known{}, map[string]Record{}
	for name, f := range disks {
		spec[name] = SpecDisk{Path: "/" + name, MayBeOnVolume: f.mayLieOnVolume}
		if f.recorded != "" {
			prev[name] = Known{UUID: f.recorded, Ready: f.ready}
		}
		if f.noRecord {
			continue
		}
		rec := Record{Name: name, Path: "/" + name, Exists: true, DeviceID: f.device, FSID: "0000000000f5", ConfigErr: f.fileErr, ReplicasErr: f.replicasErr, OnVolume: f.onVolume, ReadOnly: f.readOnly, FSType: f.fsType, Err: f.scanErr}
		if f.file != "" {
			rec.Config = &Config{UUID: f.file}
		}
		if f.oldPath {
			rec.Path = "/before"
		}
		records[name] = rec
	}
	return Match("node-1", spec, prev, records)
}

// want is the expected result for one disk; text must occur in the message.
type want struct {
	accept, create bool
	uuid           string
	reason, text   string
}

func accepted(uuid string) want { return want{accept: true, uuid: uuid, text: "is ready"} }

func rejected(uuid, reason, text string) want {
	return want{uuid: uuid, reason: reason, text: text}
}

var creating = want{create: true, reason: ReasonNoDiskInfo, text: "has not been created yet"}

func TestMatchChecksEachDiskAlone(t *testing.T) {
	tests := map[string]struct {
		disk fixture
		want want
	}{
		"new, no file → make one":                     {fixture{fileErr: ErrConfigMissing}, creating},
		"new, valid file → accepted with it":          {fixture{file: uuidA}, accepted(uuidA)},
		"known, file agrees → accepted":               {fixture{recorded: uuidA, ready: true, file: uuidA}, accepted(uuidA)},
		"known, was not ready, agrees → ready":        {fixture{recorded: uuidA, file: uuidA}, accepted(uuidA)},
		"known in upper case, agrees → ready":         {fixture{recorded: strings.ToUpper(uuidA), file: uuidA}, accepted(uuidA)},
		"known, no file → mount suspected":            {fixture{recorded: uuidA, ready: true, fileErr: ErrConfigMissing}, rejected(uuidA, ReasonDiskFilesystemChanged, "probably not mounted")},
		"known, other file → wrong mount":             {fixture{recorded: uuidA, ready: true, file: uuidB}, rejected(uuidA, ReasonDiskFilesystemChanged, "has disk UUID "+uuidB+", but "+uuidA+" is recorded")},
		"known, torn file → repair named":             {fixture{recorded: uuidA, fileErr: fmt.Errorf("x: %w", ErrConfigTorn)}, rejected(uuidA, ReasonNoDiskInfo, "incomplete or not JSON; if the right file system is mounted, restore")},
		"known, file too large → repair named":        {fixture{recorded: uuidA, fileErr: ErrConfigTooLarge}, rejected(uuidA, ReasonNoDiskInfo, "too large; if the right file system is mounted, restore")},
		"known, no UUID in file → repair named":       {fixture{recorded: uuidA, fileErr: ErrConfigNoUUID}, rejected(uuidA, ReasonNoDiskInfo, `printf '%s\n' '{"diskName":"d","diskUUID":"`+uuidA+`"`)},
		"new, torn file → never overwritten":          {fixture{fileErr: ErrConfigTorn}, rejected("", ReasonNoDiskInfo, "incomplete or not JSON; restore longhorn-disk.cfg from a copy")},
		"new, malformed UUID → not accepted":          {fixture{fileErr: ErrConfigBadUUID}, rejected("", ReasonNoDiskInfo, "malformed")},
		"new, file is no file → not accepted":         {fixture{fileErr: ErrConfigNotRegular}, rejected("", ReasonNoDiskInfo, "not a regular file")},
		"new, file unreadable → not accepted":         {fixture{fileErr: errors.New("input/output error")}, rejected("", ReasonNoDiskInfo, "input/output error")},
		"new, no directory → no info":                 {fixture{scanErr: errors.New("no such directory")}, rejected("", ReasonNoDiskInfo, "no such directory")},
		"known, no directory → UUID is kept":          {fixture{recorded: uuidA, scanErr: errors.New("no such directory")}, rejected(uuidA, ReasonNoDiskInfo, "no such directory")},
		"known, file unreadable → UUID is kept":       {fixture{recorded: uuidA, ready: true, fileErr: errors.New("input/output error")}, rejected(uuidA, ReasonNoDiskInfo, "input/output error; if the right file system is mounted, restore")},
		"known, file is no file → repair named":       {fixture{recorded: uuidA, fileErr: ErrConfigNotRegular}, rejected(uuidA, ReasonNoDiskInfo, "not a regular file; if the right file system is mounted, restore")},
		"known, bad UUID in file → repair named":      {fixture{recorded: uuidA, fileErr: ErrConfigBadUUID}, rejected(uuidA, ReasonNoDiskInfo, "malformed; if the right file system is mounted, restore")},
		"known, on another device → ready":            {fixture{recorded: uuidA, ready: true, device: 77, file: uuidA}, accepted(uuidA)},
		"known, no replicas → made anew how":          {fixture{recorded: uuidA, ready: true, file: uuidA, replicasErr: ErrReplicasMissing}, rejected(uuidA, ReasonReplicasDirectoryMissing, "mkdir -m 700 '/d/replicas'")},
		"new with a file, no replicas → the same":     {fixture{file: uuidA, replicasErr: ErrReplicasMissing}, rejected("", ReasonReplicasDirectoryMissing, "mkdir -m 700 '/d/replicas'")},
		"new, neither → both are made":                {fixture{fileErr: ErrConfigMissing, replicasErr: ErrReplicasMissing}, creating},
		"known, no file, no replicas → the mount":     {fixture{recorded: uuidA, fileErr: ErrConfigMissing, replicasErr: ErrReplicasMissing}, rejected(uuidA, ReasonDiskFilesystemChanged, "probably not mounted")},
		"known, replicas elsewhere → said so":         {fixture{recorded: uuidA, file: uuidA, replicasErr: errors.New("replicas in /d is on another file system")}, rejected(uuidA, ReasonReplicasDirectoryMissing, "on another file system; move it away")},
		"known, on a volume of this node → not ready": {fixture{recorded: uuidA, ready: true, file: uuidA, onVolume: "vol"}, rejected(uuidA, ReasonDiskOnVolume, "its file system is on volume vol, which is attached to this node")},
		"new, on a volume → no file is made on it":    {fixture{fileErr: ErrConfigMissing, onVolume: "vol"}, rejected("", ReasonDiskOnVolume, "its file system is on volume vol")},
		"known, on a volume, which is possible":       {fixture{recorded: uuidA, ready: true, file: uuidA, onVolume: "vol", mayLieOnVolume: true}, accepted(uuidA)},
		"new, on a volume, which is possible":         {fixture{fileErr: ErrConfigMissing, onVolume: "vol", mayLieOnVolume: true}, creating},
		"known, read-only → not ready":                {fixture{recorded: uuidA, ready: true, file: uuidA, readOnly: true}, rejected(uuidA, ReasonDiskReadOnly, "mount it for writing")},
		"new, read-only → no file is tried":           {fixture{fileErr: ErrConfigMissing, readOnly: true}, rejected("", ReasonDiskReadOnly, "dmesg")},
		"new, in memory → no file is made":            {fixture{fileErr: ErrConfigMissing, fsType: "tmpfs"}, rejected("", ReasonDiskInMemory, "its file system (tmpfs) is in memory")},
		"new, in memory, by its number → the same":    {fixture{fileErr: ErrConfigMissing, fsType: "0x858458f6"}, rejected("", ReasonDiskInMemory, "a restart of the node would lose all replicas")},
		"known, in memory → its replicas are served":  {fixture{recorded: uuidA, ready: true, file: uuidA, fsType: "tmpfs"}, accepted(uuidA)},
		"added again, in memory → the same":           {fixture{file: uuidA, fsType: "ramfs"}, accepted(uuidA)},
		"known, another one, read-only → wrong mount": {fixture{recorded: uuidA, file: uuidB, readOnly: true}, rejected(uuidA, ReasonDiskFilesystemChanged, "has disk UUID")},
		"not scanned → no info":                       {fixture{noRecord: true}, rejected("", ReasonNoDiskInfo, "not been scanned")},
		"scanned at its former path → no info":        {fixture{file: uuidA, oldPath: true}, rejected("", ReasonNoDiskInfo, "not been scanned")},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := matchFixtures(map[string]fixture{"d": tt.disk})
			assertVerdicts(t, got, map[string]want{"d": tt.want})
		})
	}
}

func TestMatchLetsOneDiskUseAFilesystem(t *testing.T) {
	const shares = "it shares file system 0000000000f5 with disks "
	tests := map[string]struct {
		disks map[string]fixture
		want  map[string]want
	}{
		"two new disks on two file systems → both": {
			map[string]fixture{"a": {device: 1, file: uuidA}, "b": {device: 2, fileErr: ErrConfigMissing}},
			map[string]want{"a": accepted(uuidA), "b": creating},
		},
		"two new disks on one file system → neither": {
			map[string]fixture{"a": {fileErr: ErrConfigMissing}, "b": {fileErr: ErrConfigMissing}},
			map[string]want{
				"a": rejected("", ReasonDiskFilesystemChanged, shares+"[b]"),
				"b": rejected("", ReasonDiskFilesystemChanged, shares+"[a]"),
			},
		},
		"three new disks on one file system, some with files → none": {
			map[string]fixture{"a": {file: uuidA}, "b": {file: uuidB}, "c": {fileErr: ErrConfigMissing}},
			map[string]want{
				"a": rejected("", ReasonDiskFilesystemChanged, shares+"[b, c]"),
				"b": rejected("", ReasonDiskFilesystemChanged, shares+"[a, c]"),
				"c": rejected("", ReasonDiskFilesystemChanged, shares+"[a, b]"),
			},
		},
		"one old and two new → the old one stays": {
			map[string]fixture{"a": {fileErr: ErrConfigMissing}, "b": {recorded: uuidB, ready: true, file: uuidB}, "c": {file: uuidA}},
			map[string]want{
				"a": rejected("", ReasonDiskFilesystemChanged, shares+"[b, c]"),
				"b": accepted(uuidB),
				"c": rejected("", ReasonDiskFilesystemChanged, shares+"[a, b]"),
			},
		},
		"an old one that was not ready → stays all the same": {
			map[string]fixture{"a": {file: uuidA}, "b": {recorded: uuidB, file: uuidB}},
			map[string]want{"a": rejected("", ReasonDiskFilesystemChanged, shares+"[b]"), "b": accepted(uuidB)},
		},
		"two old in one directory → the UUID tells which is valid": {
			map[string]fixture{"a": {recorded: uuidA, ready: true, file: uuidB}, "b": {recorded: uuidB, ready: true, file: uuidB}},
			map[string]want{"a": rejected(uuidA, ReasonDiskFilesystemChanged, "has disk UUID"), "b": accepted(uuidB)},
		},
		"an old one unmounted onto another's file system → only it suffers": {
			map[string]fixture{"a": {recorded: uuidA, ready: true, fileErr: ErrConfigMissing}, "b": {recorded: uuidB, ready: true, file: uuidB}},
			map[string]want{"a": rejected(uuidA, ReasonDiskFilesystemChanged, "probably not mounted"), "b": accepted(uuidB)},
		},
		"an old one unmounted beneath a new disk → the new one is judged alone": {
			map[string]fixture{"a": {recorded: uuidA, fileErr: ErrConfigMissing}, "b": {fileErr: ErrConfigMissing}},
			map[string]want{"a": rejected(uuidA, ReasonDiskFilesystemChanged, "probably not mounted"), "b": creating},
		},
		"an old one with a torn file and a new one → no file is made beside it": {
			map[string]fixture{"a": {recorded: uuidA, ready: true, fileErr: ErrConfigTorn}, "b": {fileErr: ErrConfigMissing}},
			map[string]want{"a": rejected(uuidA, ReasonNoDiskInfo, "incomplete"), "b": rejected("", ReasonDiskFilesystemChanged, shares+"[a]")},
		},
		"an old one without replicas and a new one with a file → the new one is not ready": {
			map[string]fixture{"a": {recorded: uuidA, ready: true, file: uuidA, replicasErr: ErrReplicasMissing}, "b": {file: uuidB}},
			map[string]want{"a": rejected(uuidA, ReasonReplicasDirectoryMissing, "mkdir"), "b": rejected("", ReasonDiskFilesystemChanged, shares+"[a]")},
		},
		"two old ones, the file of one is torn → the other stays": {
			map[string]fixture{"a": {recorded: uuidA, ready: true, fileErr: ErrConfigTorn}, "b": {recorded: uuidB, ready: true, file: uuidB}},
			map[string]want{"a": rejected(uuidA, ReasonNoDiskInfo, "incomplete"), "b": accepted(uuidB)},
		},
		"two valid old ones, one was ready → it stays": {
			map[string]fixture{"a": {recorded: uuidA, file: uuidA}, "b": {recorded: uuidB, ready: true, file: uuidB}},
			map[string]want{"a": rejected(uuidA, ReasonDiskFilesystemChanged, shares+"[b]"), "b": accepted(uuidB)},
		},
		"two valid old ones, both were ready → the first by name": {
			map[string]fixture{"a": {recorded: uuidA, ready: true, file: uuidA}, "b": {recorded: uuidB, ready: true, file: uuidB}},
			map[string]want{"a": accepted(uuidA), "b": rejected(uuidB, ReasonDiskFilesystemChanged, shares+"[a]")},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			assertVerdicts(t, matchFixtures(tt.disks), tt.want)
		})
	}
}

func TestMatchLetsOneDiskHaveAUUID(t *testing.T) {
	const duplicate = "duplicate UUID: disk UUID " + uuidA + " also belongs to disks "
	tests := map[string]struct {
		disks map[string]fixture
		want  map[string]want
	}{
		"a clone of an old disk is added → the old one stays": {
			map[string]fixture{"a": {device: 1, file: uuidA}, "b": {device: 2, recorded: uuidA, ready: true, file: uuidA}},
			map[string]want{"a": rejected("", ReasonDuplicateUUID, duplicate+"[b]"), "b": accepted(uuidA)},
		},
		"the disk is added at another path, its old entry is empty → it is there": {
			map[string]fixture{"a": {device: 1, file: uuidA}, "b": {device: 2, recorded: uuidA, ready: true, fileErr: ErrConfigMissing}},
			map[string]want{
				"a": accepted(uuidA),
				"b": rejected(uuidA, ReasonDiskMoved, "is now at /a, as disk a of this node"),
			},
		},
		"it was accepted there → it stays there": {
			map[string]fixture{"a": {device: 1, recorded: uuidA, ready: true, file: uuidA}, "b": {device: 2, recorded: uuidA, fileErr: ErrConfigMissing}},
			map[string]want{
				"a": accepted(uuidA),
				"b": rejected(uuidA, ReasonDiskMoved, "is now at /a"),
			},
		},
		"the path of its old entry is gone → it is there": {
			map[string]fixture{"a": {device: 1, file: uuidA}, "b": {recorded: uuidA, scanErr: fmt.Errorf("open: %w", os.ErrNotExist)}},
			map[string]want{"a": accepted(uuidA), "b": rejected(uuidA, ReasonDiskMoved, "is now at /a")},
		},
		"another disk is at the path of its old entry → it is there": {
			map[string]fixture{"a": {device: 1, file: uuidA}, "b": {device: 2, recorded: uuidA, file: uuidB}},
			map[string]want{"a": accepted(uuidA), "b": rejected(uuidA, ReasonDiskMoved, "is now at /a")},
		},
		"its old entry cannot be looked at → refused, for it may be there": {
			map[string]fixture{"a": {device: 1, file: uuidA}, "b": {recorded: uuidA, scanErr: errors.New("input/output error")}},
			map[string]want{
				"a": rejected("", ReasonDuplicateUUID, duplicate+"[b]"),
				"b": rejected(uuidA, ReasonNoDiskInfo, "input/output error"),
			},
		},
		"its old entry has a torn file → refused, for it may be there": {
			map[string]fixture{"a": {device: 1, file: uuidA}, "b": {device: 2, recorded: uuidA, fileErr: ErrConfigTorn}},
			map[string]want{
				"a": rejected("", ReasonDuplicateUUID, duplicate+"[b]"),
				"b": rejected(uuidA, ReasonNoDiskInfo, "incomplete"),
			},
		},
		"its old entry was not scanned yet → refused until it is": {
			map[string]fixture{"a": {device: 1, file: uuidA}, "b": {recorded: uuidA, noRecord: true}},
			map[string]want{
				"a": rejected("", ReasonDuplicateUUID, duplicate+"[b]"),
				"b": rejected(uuidA, ReasonNoDiskInfo, "not been scanned"),
			},
		},
		"two copies are added while the old entry is empty → neither": {
			map[string]fixture{"a": {device: 1, file: uuidA}, "b": {device: 2, recorded: uuidA, fileErr: ErrConfigMissing}, "c": {device: 3, file: uuidA}},
			map[string]want{
				"a": rejected("", ReasonDuplicateUUID, duplicate+"[c]"),
				"b": rejected(uuidA, ReasonDiskFilesystemChanged, "probably not mounted"),
				"c": rejected("", ReasonDuplicateUUID, duplicate+"[a]"),
			},
		},
		"two new clones → neither": {
			map[string]fixture{"a": {device: 1, file: uuidA}, "b": {device: 2, file: uuidA}},
			map[string]want{
				"a": rejected("", ReasonDuplicateUUID, duplicate+"[b]"),
				"b": rejected("", ReasonDuplicateUUID, duplicate+"[a]"),
			},
		},
		"a new clone of a new disk that shares its file system → refused too": {
			map[string]fixture{"a": {device: 1, file: uuidA}, "b": {device: 1, fileErr: ErrConfigMissing}, "c": {device: 2, file: uuidA}},
			map[string]want{
				"a": rejected("", ReasonDiskFilesystemChanged, "[b]"),
				"b": rejected("", ReasonDiskFilesystemChanged, "[a]"),
				"c": rejected("", ReasonDuplicateUUID, duplicate+"[a]"),
			},
		},
		"the new disk's file system is also mounted over an old one → the new one is accepted": {
			map[string]fixture{"a": {device: 1, file: uuidA}, "b": {device: 1, recorded: uuidB, file: uuidA}},
			map[string]want{"a": accepted(uuidA), "b": rejected(uuidB, ReasonDiskFilesystemChanged, "has disk UUID")},
		},
		"two old ones recorded with one UUID → the ready one stays": {
			map[string]fixture{"a": {device: 1, recorded: uuidA, file: uuidA}, "b": {device: 2, recorded: uuidA, ready: true, file: uuidA}},
			map[string]want{"a": rejected(uuidA, ReasonDuplicateUUID, duplicate+"[b]"), "b": accepted(uuidA)},
		},
		"two old ones recorded with one UUID, both ready → the first by name": {
			map[string]fixture{"a": {device: 1, recorded: uuidA, ready: true, file: uuidA}, "b": {device: 2, recorded: uuidA, ready: true, file: uuidA}},
			map[string]want{"a": accepted(uuidA), "b": rejected(uuidA, ReasonDuplicateUUID, duplicate+"[a]")},
		},
		"one directory under an old and a new name → shared, not duplicate": {
			map[string]fixture{"a": {file: uuidA}, "b": {recorded: uuidA, ready: true, file: uuidA}},
			map[string]want{"a": rejected("", ReasonDiskFilesystemChanged, "shares file system"), "b": accepted(uuidA)},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			assertVerdicts(t, matchFixtures(tt.disks), tt.want)
		})
	}
}

// XFS may show another f_fsid after each mount, and a clone shows the f_fsid of the original.
func TestMatchIsIndifferentToFilesystemIDs(t *testing.T) {
	spec := map[string]SpecDisk{"a": {Path: "/a"}, "b": {Path: "/b"}}
	record := func(name string, device uint64, fsid, uuid string) Record {
		return Record{Name: name, Path: "/" + name, Exists: true, DeviceID: device, SuperBlockID: device, FSID: fsid, Config: &Config{UUID: uuid}}
	}
	known := map[string]Known{"a": {UUID: uuidA, Ready: true}, "b": {UUID: uuidB, Ready: true}}
	tests := map[string]struct {
		known map[string]Known
		a, b  Record
		want  map[string]want
	}{
		"remounted, with another f_fsid and device number → ready": {
			known, record("a", 5, "0000000000aa", uuidA), record("b", 6, "0000000000bb", uuidB),
			map[string]want{"a": accepted(uuidA), "b": accepted(uuidB)},
		},
		"the f_fsid of the other disk after a remount → both ready": {
			known, record("a", 1, "0000000000bb", uuidA), record("b", 2, "0000000000bb", uuidB),
			map[string]want{"a": accepted(uuidA), "b": accepted(uuidB)},
		},
		"a clone with the f_fsid of the original, on its own device → duplicate UUID": {
			map[string]Known{"a": {UUID: uuidA, Ready: true}},
			record("a", 1, "0000000000aa", uuidA), record("b", 2, "0000000000aa", uuidA),
			map[string]want{"a": accepted(uuidA), "b": rejected("", ReasonDuplicateUUID, "duplicate UUID: disk UUID "+uuidA+" also belongs to disks [a]")},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := Match("node-1", spec, tt.known, map[string]Record{"a": tt.a, "b": tt.b})
			assertVerdicts(t, got, tt.want)
		})
	}
}

func TestMatchMessagesNameDiskPathAndNode(t *testing.T) {
	got := matchFixtures(map[string]fixture{"a": {device: 1, file: uuidA}, "b": {device: 2, scanErr: errors.New("boom")}})
	assert.Equal(t, "Disk a(/a) on node node-1 is ready", got["a"].Message)
	assert.Equal(t, "Disk b(/b) on node node-1 is not ready: boom", got["b"].Message)
}

func TestAFreshDiskIsAcceptedAfterItsFileWasCreated(t *testing.T) {
	root := t.TempDir()
	spec, paths := map[string]SpecDisk{"d": {Path: "/"}}, map[string]string{"d": "/"}

	records := Scan(root, paths)
	first := Match("n", spec, nil, records)["d"]
	require.True(t, first.CreateConfig, "verdict %+v", first)
	require.False(t, first.Accept)
	require.NoError(t, Create(root, records["d"], NewConfig("d", uuidA)))
	second := Match("n", spec, nil, Scan(root, paths))["d"]
	assert.True(t, second.Accept)
	assert.Equal(t, uuidA, second.UUID)
	assert.False(t, second.CreateConfig)
}

// For any disks: accepted disks have distinct file systems and UUIDs, and a recorded UUID stays. The verdicts are a
// fixed point: if they are recorded and the disks are matched again, nothing changes. So disks do not take turns.
func TestMatchInvariants(t *testing.T) {
	uuids := []string{uuidA, uuidB, "cccccccc-55d0-4a8b-9a0e-0c4f5a1d2b31"}
	rapid.Check(t, func(t *rapid.T) {
		disks := map[string]fixture{}
		for _, name := range []string{"a", "b", "c", "d"}[:rapid.IntRange(1, 4).Draw(t, "disks")] {
			f := fixture{device: rapid.Uint64Range(1, 3).Draw(t, "device")}
			if i := rapid.IntRange(-1, 2).Draw(t, "recorded"); i >= 0 {
				f.recorded, f.ready = uuids[i], rapid.Bool().Draw(t, "ready")
			}
			if i := rapid.IntRange(-2, 2).Draw(t, "file"); i >= 0 {
				f.file = uuids[i]
			} else {
				f.fileErr = map[int]error{-1: ErrConfigMissing, -2: ErrConfigTorn}[i]
			}
			disks[name] = f
		}
		got := matchFixtures(disks)

		usedDevice, usedUUID := map[uint64]string{}, map[string]string{}
		for _, name := range slices.Sorted(maps.Keys(got)) {
			v, f := got[name], disks[name]
			if f.recorded != "" {
				require.Equal(t, f.recorded, v.UUID, "disk %s", name)
			}
			require.False(t, v.CreateConfig && (f.recorded != "" || !errors.Is(f.fileErr, ErrConfigMissing)), "disk %s %+v would get a file", name, f)
			if !v.Accept && !v.CreateConfig {
				continue
			}
			other, ok := usedDevice[f.device]
			require.False(t, ok, "disks %s and %s both use device %d", name, other, f.device)
			usedDevice[f.device] = name
			if !v.Accept {
				continue
			}
			other, ok = usedUUID[v.UUID]
			require.False(t, ok, "disk %s, also used by %q", name, other)
			require.Equal(t, f.file, v.UUID, "disk %s, also used by %q", name, other)
			usedUUID[v.UUID] = name
		}

		for name, v := range got {
			f := disks[name]
			f.recorded, f.ready = v.UUID, v.Accept
			disks[name] = f
		}
		for name, again := range matchFixtures(disks) {
			require.Equal(t, again.Accept, got[name].Accept, "disk %s", name)
			require.Equal(t, again.UUID, got[name].UUID, "disk %s", name)
		}
	})
}

func assertVerdicts(t *testing.T, got map[string]Verdict, wants map[string]want) {
	t.Helper()
	assert.Len(t, got, len(wants))
	for name, w := range wants {
		g := got[name]
		assert.Equal(t, w.accept, g.Accept, "disk %s", name)
		assert.Equal(t, w.create, g.CreateConfig, "disk %s", name)
		assert.Equal(t, w.uuid, g.UUID, "disk %s", name)
		assert.Equal(t, w.reason, g.Reason, "disk %s", name)
		assert.Contains(t, g.Message, w.text, "disk %s", name)
	}
}
