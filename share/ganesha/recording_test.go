package ganesha

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/types"
)

const (
	// The lines of Ganesha 4.3, and of 9.14.
	noDirectory = "25/11/2026 04:04:58 : epoch 1 : h : ganesha.nfsd-1[main] fs_create_recov_dir :CLIENT ID :EVENT :Failed to create v4 recovery dir(/run/recovery/v4recov/node0.cBVVZw): No space left on device (28)\n"
	noRecord    = "25/11/2026 04:04:59 : epoch 1 : h : ganesha.nfsd-1[svc_9] fs_add_clid :CLIENT ID :EVENT :Failed to create client in recovery dir (/run/recovery/v4recov/node0.cBVVZw/::ffff:127.0.0.1-(12:proof-client)), errno: No such file or directory (2)\n"
	noRecord9   = "26/11/2026 21:59:03 : epoch 1 : h : nfs-ganesha-7[svc_9] fs_add_clid :RECOVERY :EVENT :Failed to create client in recovery dir (/run/recovery/v4recov/node0.cBVVZw/::ffff:127.0.0.1-(12:proof-client)), errno: No such file or directory (2)\n"
)

func TestAServerThatCannotRecordItsClientsIsReported(t *testing.T) {
	start := time.Now()
	for name, c := range map[string]struct {
		lines []string // "" is the start of the next server
		want  string   // reason and message
	}{
		"all in order → nothing":                              {[]string{"ganesha.nfsd-1[main] x :CLIENT ID :EVENT :check grace", "Failed to create client"}, ""},
		"no directory → the next server will not know them":   {[]string{noDirectory}, "RecoveryDataUnusable the NFS server cannot record its clients on the volume: No space left on device (28)"},
		"no record → the same":                                {[]string{noRecord}, "RecoveryDataUnusable the NFS server cannot record its clients on the volume: No such file or directory (2)"},
		"no record, by 9.14 → the same":                       {[]string{noRecord9}, "RecoveryDataUnusable the NFS server cannot record its clients on the volume: No such file or directory (2)"},
		"both → reported once, as the first":                  {[]string{noDirectory, noRecord, noRecord}, "RecoveryDataUnusable the NFS server cannot record its clients on the volume: No space left on device (28)"},
		"the next server of the pod starts → clients lost it": {[]string{noDirectory, ""}, "RecoveryDataMissing the previous server could not record its clients on the volume"},
		"that one cannot either → it is said, too":            {[]string{noDirectory, "", noRecord}, "RecoveryDataUnusable the NFS server cannot record its clients on the volume: No such file or directory (2)"},
		"a server starts after one that could → nothing":      {[]string{""}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var told []types.ShareRecovery
			r := &Recording{started: start, records: NotKnown, report: func(f types.ShareRecovery) { told = append(told, f) }, log: quiet()}
			for _, line := range c.lines {
				if line == "" {
					r.ServerStarts(NotKnown)
				} else {
					r.HandleLine([]byte(line))
				}
			}
			r.Report(start.Add(firstQuestionLimit - time.Second))
			assert.Empty(t, told, "what was found at the start has not been asked for yet")
			r.Report(start.Add(firstQuestionLimit))
			r.Report(start.Add(firstQuestionLimit + time.Second))
			if c.want == "" {
				assert.Empty(t, told)
				return
			}
			require.Len(t, told, 1)
			assert.Equal(t, c.want, told[0].Reason+" "+told[0].Message)
			assert.NotEmpty(t, told[0].Incident)
		})
	}
}
