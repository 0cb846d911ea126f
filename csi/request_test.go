package csi

import (
	"testing"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/types"
)

func capabilityOf(mode csipb.VolumeCapability_AccessMode_Mode, fsType string) *csipb.VolumeCapability {
	return &csipb.VolumeCapability{
		AccessMode: &csipb.VolumeCapability_AccessMode{Mode: mode},
		AccessType: &csipb.VolumeCapability_Mount{Mount: &csipb.VolumeCapability_MountVolume{FsType: fsType}},
	}
}

func blockOf(mode csipb.VolumeCapability_AccessMode_Mode) *csipb.VolumeCapability {
	return &csipb.VolumeCapability{
		AccessMode: &csipb.VolumeCapability_AccessMode{Mode: mode},
		AccessType: &csipb.VolumeCapability_Block{Block: &csipb.VolumeCapability_BlockVolume{}},
	}
}

const (
	writer       = csipb.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
	singleWriter = csipb.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
	multiWriter  = csipb.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
	multiNode    = csipb.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	multiReader  = csipb.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
)

// allIgnored are the options of a volume that is created without any.
var allIgnored = types.VolumeOptions{
	ReplicaSoftAntiAffinity: "ignored", ReplicaZoneSoftAntiAffinity: "ignored", ReplicaDiskSoftAntiAffinity: "ignored", ReplicaAutoBalance: "ignored",
}

func TestParseParameters(t *testing.T) {
	cases := []struct {
		name   string
		params map[string]string
		want   parameters
		err    string // part of the error; empty: no error
	}{
		{
			name: "no parameters get the defaults",
			want: parameters{staleMinutes: 2880, fsType: "ext4", options: allIgnored},
		},
		{
			name: "the StorageClass that Longhorn's chart ships is accepted",
			params: map[string]string{
				"numberOfReplicas": "3", "staleReplicaTimeout": "30", "fromBackup": "", "fsType": "ext4",
				"dataLocality": "disabled", "unmapMarkSnapChainRemoved": "ignored", "disableRevisionCounter": "true",
				"dataEngine": "v1", "backupTargetName": "default",
			},
			want: parameters{replicas: 3, staleMinutes: 30, fsType: "ext4", options: allIgnored, locality: "disabled"},
		},
		{
			name: "everything that can be set is set",
			params: map[string]string{
				"numberOfReplicas": "2", "staleReplicaTimeout": "0", "fsType": "xfs", "mkfsParams": "-K -i size=512",
				"diskSelector": "ssd, fast", "nodeSelector": "storage", "replicaSoftAntiAffinity": "enabled", "exclusive": "true",
				"replicaZoneSoftAntiAffinity": "disabled", "replicaDiskSoftAntiAffinity": "disabled", "replicaAutoBalance": "least-effort",
			},
			want: parameters{
				replicas: 2, staleMinutes: 2880, fsType: "xfs", mkfsParams: "-K -i size=512",
				options:      types.VolumeOptions{ReplicaSoftAntiAffinity: "enabled", ReplicaZoneSoftAntiAffinity: "disabled", ReplicaDiskSoftAntiAffinity: "disabled", ReplicaAutoBalance: "least-effort"},
				diskSelector: []string{"ssd", "fast"}, nodeSelector: []string{"storage"}, exclusive: true,
			},
		},
		{
			name:   "an unknown parameter is ignored",
			params: map[string]string{"colour": "blue", "csi.storage.k8s.io/pvc/name": "data"},
			want:   parameters{staleMinutes: 2880, fsType: "ext4", options: allIgnored},
		},
		{name: "no replicas are refused", params: map[string]string{"numberOfReplicas": "0"}, err: `parameter numberOfReplicas: value "0" must be a whole number from 1 to 20`},
		{name: "too many replicas are refused", params: map[string]string{"numberOfReplicas": "21"}, err: "numberOfReplicas"},
		{name: "an anti-affinity of no known word is refused", params: map[string]string{"replicaZoneSoftAntiAffinity": "true"}, err: `parameter replicaZoneSoftAntiAffinity: value "true" must be one of ignored, enabled, disabled`},
		{name: "a balance of no known word is refused", params: map[string]string{"replicaAutoBalance": "true"}, err: `parameter replicaAutoBalance: value "true" must be one of ignored, disabled, least-effort, best-effort`},
		{name: "a timeout in words is refused", params: map[string]string{"staleReplicaTimeout": "soon"}, err: "staleReplicaTimeout"},
		{name: "another file system is refused", params: map[string]string{"fsType": "btrfs"}, err: `parameter fsType: value "btrfs" must be one of ext4, xfs`},
		{name: "a local replica is asked for", params: map[string]string{"dataLocality": "best-effort"}, want: parameters{staleMinutes: 2880, fsType: "ext4", options: allIgnored, locality: "best-effort"}},
		{name: "a strictly local replica is asked for", params: map[string]string{"dataLocality": "strict-local"}, want: parameters{staleMinutes: 2880, fsType: "ext4", options: allIgnored, locality: "strict-local"}},
		{name: "an unknown locality is refused", params: map[string]string{"dataLocality": "near"}, err: `parameter dataLocality: value "near" must be one of disabled, best-effort, strict-local`},
		{name: "a restore is refused", params: map[string]string{"fromBackup": "s3://b@r/?volume=v"}, err: "parameter fromBackup"},
		{name: "encryption is refused", params: map[string]string{"encrypted": "true"}, err: "leave the parameter out or set it to false"},
		{name: "no encryption is accepted", params: map[string]string{"encrypted": "false"}, want: parameters{staleMinutes: 2880, fsType: "ext4", options: allIgnored}},
		{name: "migration is refused", params: map[string]string{"migratable": "true"}, err: "parameter migratable"},
		{name: "the other data engine is refused", params: map[string]string{"dataEngine": "v2"}, err: "parameter dataEngine"},
		{name: "sharing in other words is refused", params: map[string]string{"share": "maybe"}, err: `parameter share: value "maybe" is neither true nor false`},
		{name: "NFS options without a version are refused", params: map[string]string{"nfsOptions": "hard"}, err: `parameter nfsOptions: value "hard" must contain vers=4`},
		{name: "NFS options of version 3 are refused", params: map[string]string{"nfsOptions": "vers=3"}, err: `parameter nfsOptions: value "vers=3" contains "vers=3"; it must contain vers=4`},
		{name: "a squash that is none is refused", params: map[string]string{"nfsSquash": "some"}, err: `parameter nfsSquash: "some" must be none, root or all`},
		{name: "a node selector that is none is refused", params: map[string]string{"shareManagerNodeSelector": "zone=a"}, err: `parameter shareManagerNodeSelector: "zone=a" must be key:value pairs`},
		{name: "a toleration that is none is refused", params: map[string]string{"shareManagerTolerations": "key=a:Never"}, err: `parameter shareManagerTolerations: "key=a:Never" must be`},
		{name: "an empty tag is refused", params: map[string]string{"diskSelector": "ssd,,fast"}, err: "diskSelector"},
		{
			name: "all that is wrong is said at once, in order of the keys",
			params: map[string]string{
				"numberOfReplicas": "0", "fsType": "btrfs", "mkfsParams": "/dev/sda", "dataLocality": "near", "shareManagerTolerations": "key=a:Never", "encrypted": "true", "diskSelector": "ssd",
			},
			err: `parameter dataLocality: value "near" must be one of disabled, best-effort, strict-local; ` +
				`parameter encrypted: value "true" asks for encryption, which is not offered; leave the parameter out or set it to false; ` +
				`parameter fsType: value "btrfs" must be one of ext4, xfs; ` +
				`parameter numberOfReplicas: value "0" must be a whole number from 1 to 20; ` +
				`parameter shareManagerTolerations: "key=a:Never" must be key=value:Effect or key:Effect`,
		},
		{name: "what is wrong with mkfs is said with the rest", params: map[string]string{"mkfsParams": "/dev/sda", "numberOfReplicas": "x"}, err: `parameter numberOfReplicas: value "x" must be a whole number from 1 to 20; `},
		{name: "a device among the arguments of mkfs is refused", params: map[string]string{"mkfsParams": "/dev/sda -F"}, err: `argument "/dev/sda"`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := parseParameters(c.params)
			checkError(t, err, c.err)
			if err == nil {
				assert.Equal(t, c.want, got)
			}
		})
	}
}

func checkError(t *testing.T, err error, part string) {
	t.Helper()
	if part == "" {
		require.NoError(t, err)
	} else {
		require.ErrorContains(t, err, part)
	}
}

func TestVolumeSize(t *testing.T) {
	const mib = int64(1 << 20)
	cases := []struct {
		name            string
		required, limit int64
		fsType          string
		want            int64
		err             string
	}{
		{name: "nothing asked gives the minimum", want: 10 * mib},
		{name: "less than the minimum gives the minimum", required: 1, want: 10 * mib},
		{name: "a multiple of the unit stays", required: 64 * mib, want: 64 * mib},
		{name: "one byte more is rounded up", required: 64*mib + 1, want: 66 * mib},
		{name: "xfs gets what it needs", required: 64 * mib, fsType: "xfs", want: 300 * mib},
		{name: "a limit that is met is no matter", required: 64 * mib, limit: 64 * mib, want: 64 * mib},
		{name: "rounding past the limit is out of range", required: 64*mib + 1, limit: 65 * mib, err: "the smallest possible size is 66 MiB, which is more than the limit 65 MiB"},
		{name: "xfs past the limit is out of range", required: 64 * mib, limit: 100 * mib, fsType: "xfs", err: "300 MiB"},
		{name: "a limit below the requirement is refused", required: 64 * mib, limit: 32 * mib, err: "the limit 32 MiB is less than the required size 64 MiB"},
		{name: "a negative size is refused", required: -1, err: "must not be negative"},
		{name: "the largest multiple of the unit stays", required: 9223372036852678656, want: 9223372036852678656},
		{name: "one byte more is out of range", required: 9223372036852678657, err: "capacity range: the required size 8 EiB (9223372036852678657 bytes) is more than the largest possible size, 8 EiB (9223372036852678656 bytes)"},
		{name: "the largest number is out of range", required: 1<<63 - 1, err: "the required size 8 EiB (9223372036854775807 bytes) is more than"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := volumeSize(&csipb.CapacityRange{RequiredBytes: c.required, LimitBytes: c.limit}, c.fsType)
			checkError(t, err, c.err)
			assert.Equal(t, c.want, got)
		})
	}
}

func TestVolumeRequest(t *testing.T) {
	const uid = "pvc-0b5f2a5e-5d2c-4c1e-9d0c-3a1d2f4b6c7d"
	mount := []*csipb.VolumeCapability{capabilityOf(multiWriter, "ext4")}
	base := VolumeRequest{
		Name: uid, SizeBytes: 64 << 20, StaleReplicaTimeoutMinutes: 2880,
		AccessMode: "rwo", VolumeOptions: allIgnored,
	}
	with := func(change func(*VolumeRequest)) VolumeRequest { r := base; change(&r); return r }
	size := &csipb.CapacityRange{RequiredBytes: 64 << 20}
	shared := with(func(r *VolumeRequest) { r.AccessMode = "rwx" })
	asking := func(params map[string]string, c ...*csipb.VolumeCapability) *csipb.CreateVolumeRequest {
		return &csipb.CreateVolumeRequest{Name: uid, CapacityRange: size, VolumeCapabilities: c, Parameters: params}
	}
	cases := []struct {
		name string
		req  *csipb.CreateVolumeRequest
		want VolumeRequest
		err  string
	}{
		{name: "an ordinary claim", req: &csipb.CreateVolumeRequest{Name: uid, CapacityRange: size, VolumeCapabilities: mount}, want: base},
		{
			name: "a name of capitals and great length is shortened",
			req:  &csipb.CreateVolumeRequest{Name: "My-Very-Long-Name-That-Nobody-Would-Want-To-Type", CapacityRange: size, VolumeCapabilities: mount},
			want: with(func(r *VolumeRequest) { r.Name = "my-very-long-name-that-nobody-w-dbc15b11" }),
		},
		{
			name: "ReadWriteOncePod becomes rwop",
			req:  &csipb.CreateVolumeRequest{Name: uid, CapacityRange: size, VolumeCapabilities: []*csipb.VolumeCapability{capabilityOf(singleWriter, "")}},
			want: with(func(r *VolumeRequest) { r.AccessMode = "rwop" }),
		},
		{
			name: "the capability's file system wins over the parameter's",
			req: &csipb.CreateVolumeRequest{
				Name: uid, CapacityRange: size, VolumeCapabilities: []*csipb.VolumeCapability{capabilityOf(writer, "xfs")},
				Parameters: map[string]string{"fsType": "ext4"},
			},
			want: with(func(r *VolumeRequest) { r.SizeBytes = 300 << 20 }),
		},
		{
			name: "a block volume has no file system to make room for",
			req: &csipb.CreateVolumeRequest{
				Name: uid, CapacityRange: size, VolumeCapabilities: []*csipb.VolumeCapability{blockOf(writer)},
				Parameters: map[string]string{"fsType": "xfs"},
			},
			want: base,
		},
		{
			name: "options of mkfs for the capability's file system are accepted",
			req:  asking(map[string]string{"mkfsParams": "-i size=512"}, capabilityOf(writer, "xfs")),
			want: with(func(r *VolumeRequest) { r.SizeBytes = 300 << 20 }),
		},
		{name: "a nameless volume is refused", req: &csipb.CreateVolumeRequest{VolumeCapabilities: mount}, err: "name is missing"},
		{name: "a name of dots is refused", req: &csipb.CreateVolumeRequest{Name: "..", VolumeCapabilities: mount}, err: "must consist of"},
		{name: "no capability is refused", req: &csipb.CreateVolumeRequest{Name: uid}, err: "capabilities are missing"},
		{name: "many nodes → rwx", req: asking(nil, capabilityOf(multiNode, "")), want: shared},
		{name: "many nodes that read → rwx", req: asking(nil, capabilityOf(multiReader, "")), want: shared},
		{name: "many nodes or one → rwx", req: asking(nil, capabilityOf(writer, ""), capabilityOf(multiNode, "")), want: shared},
		{name: "one node and the parameter share → rwx", req: asking(map[string]string{"share": "true"}, capabilityOf(writer, "")), want: shared},
		{
			name: "many nodes and what a share manager reads → rwx",
			req: asking(map[string]string{
				"nfsOptions": "vers=4.1,hard", "nfsSquash": "root", "shareManagerNodeSelector": "zone:a;disk:ssd", "shareManagerTolerations": "dedicated=nfs:NoSchedule;spot:NoExecute",
			}, capabilityOf(multiNode, "")),
			want: shared,
		},
		{name: "a block volume of many nodes is refused", req: asking(nil, blockOf(multiNode)), err: "access mode ReadWriteMany (MULTI_NODE_MULTI_WRITER) is not supported for a block volume: several nodes share a volume over NFS"},
		{name: "a block volume that many nodes read is refused", req: asking(nil, blockOf(multiReader)), err: "ReadOnlyMany (MULTI_NODE_READER_ONLY) is not supported for a block volume"},
		{name: "a block volume with the parameter share is refused", req: asking(map[string]string{"share": "true"}, blockOf(writer)), err: `parameter share: value "true"`},
		{name: "one writer among many nodes is refused", req: asking(nil, capabilityOf(csipb.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER, "")), err: "MULTI_NODE_SINGLE_WRITER is not supported"},
		{name: "one pod and many nodes are refused", req: asking(nil, capabilityOf(singleWriter, ""), capabilityOf(multiNode, "")), err: "contradict each other"},
		{name: "the parameter exclusive and many nodes are refused", req: asking(map[string]string{"exclusive": "true"}, capabilityOf(multiNode, "")), err: "parameter exclusive"},
		{name: "the parameter share and one pod are refused", req: asking(map[string]string{"share": "true"}, capabilityOf(singleWriter, "")), err: "parameter share"},
		{name: "the parameters share and exclusive are refused", req: asking(map[string]string{"share": "true", "exclusive": "true"}, capabilityOf(writer, "")), err: "parameter share"},
		{name: "many nodes and data on one are refused", req: asking(map[string]string{"dataLocality": "strict-local"}, capabilityOf(multiNode, "")), err: `parameter dataLocality: value "strict-local"`},
		{
			name: "a content source is refused",
			req:  &csipb.CreateVolumeRequest{Name: uid, VolumeCapabilities: mount, VolumeContentSource: &csipb.VolumeContentSource{}},
			err:  "content source",
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := volumeRequest(c.req)
			checkError(t, err, c.err)
			assert.Equal(t, c.want, got)
		})
	}
}
