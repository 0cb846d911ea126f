package csi

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// TestAClaimThatDoesNotFitIsRefusedInOneSentence: the manager repeats its summary in front of the details, and names
// the volume.
func TestAClaimThatDoesNotFitIsRefusedInOneSentence(t *testing.T) {
	const summary = "replica scheduling failed: insufficient storage (5 disks)"
	lines := []string{summary}
	for i := range 5 {
		lines = append(lines, fmt.Sprintf("node n%d disk d: insufficient storage: 1 GiB is left", i))
	}
	m, _ := managerOver(t, map[string]restAnswer{
		"GET /v1/volumes/pvc-1": {404, `{"type":"error","status":404,"message":"volume \"pvc-1\" does not exist"}`},
		"POST /v1/volumes": {422, `{"type":"error","status":422,"code":"Insufficient Storage","message":"volume \"pvc-1\": 5 TiB do not fit: ` + summary +
			`","detail":"` + strings.Join(lines, `\n`) + `\n"}`},
	})
	c := &controller{volumes: m, driver: testDriver, log: quiet()}
	err := toStatus(c.create(t.Context(), VolumeRequest{Name: "pvc-1", SizeBytes: 5 << 40}))
	assert.Equal(t, codes.ResourceExhausted, status.Code(err))
	assert.Equal(t, `volume "pvc-1": 5 TiB do not fit: `+summary+`: node n0 disk d: insufficient storage: 1 GiB is left; `+
		`node n1 disk d: insufficient storage: 1 GiB is left; node n2 disk d: insufficient storage: 1 GiB is left; and 2 more`, status.Convert(err).Message())
}

func TestWithAction(t *testing.T) {
	refusal := &serviceError{class: ErrNotFound, text: `volume "v" does not exist`}
	for _, c := range []struct {
		name  string
		err   error
		names []string
		want  string
	}{
		{"a refusal that has the name → as it is", refusal, []string{"v"}, `volume "v" does not exist`},
		{"a refusal that lacks a name → what was attempted", refusal, []string{"v", "n1"}, `doing it: volume "v" does not exist`},
		{"no refusal → what was attempted", fmt.Errorf("GET /v: refused"), []string{"v"}, "doing it: GET /v: refused"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := withAction(c.err, "doing it", c.names...)
			assert.ErrorIs(t, got, c.err)
			assert.EqualError(t, got, c.want)
		})
	}
}

// TestAStorageClassOfLonghornsUsersIsAccepted: parameters without effect, as in a cluster with Longhorn.
func TestAStorageClassOfLonghornsUsersIsAccepted(t *testing.T) {
	params := map[string]string{
		"accessMode": "rwo", "backupCompressionMethod": "none", "backupTargetName": "default", "dataEngine": "v1", "dataLocality": "disabled",
		"disableRevisionCounter": "true", "freezeFilesystemForSnapshot": "ignored", "fromBackup": "", "fsType": "ext4", "numberOfReplicas": "3",
		"offlineRebuilding": "ignored", "replicaAutoBalance": "ignored", "replicaDiskSoftAntiAffinity": "ignored", "replicaSoftAntiAffinity": "ignored",
		"replicaZoneSoftAntiAffinity": "ignored", "restoreVolumeRecurringJob": "ignored", "snapshotDataIntegrity": "ignored", "staleReplicaTimeout": "2880",
	}
	assert.NoError(t, CheckParameters(params))
	assert.Empty(t, types.ParametersWithoutEffect(params))
}
