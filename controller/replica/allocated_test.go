package replica

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestTheSpaceThatAReplicaTakesIsWrittenDownNowAndThen(t *testing.T) {
	const mib = 1 << 20
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, tc := range []struct {
		name          string
		size, was, is int64
		ago           time.Duration // since the last write; negative: never written
		written       bool
		after         time.Duration
	}{
		{"nothing written yet, nothing allocated → nothing", 1024 * mib, 0, 0, -1, false, 0},
		{"the first megabytes → written", 1024 * mib, 0, 20 * mib, -1, true, 0},
		{"less than 1 % more → not written", 1024 * mib, 100 * mib, 110 * mib, time.Hour, false, 0},
		{"1 % more → written", 1024 * mib, 100 * mib, 111 * mib, time.Hour, true, 0},
		{"1 % less, as after a trim → written", 1024 * mib, 111 * mib, 100 * mib, time.Hour, true, 0},
		{"64 MiB of a volume of a tebibyte → written", 1024 * 1024 * mib, 0, 64 * mib, -1, true, 0},
		{"less than that → not written", 1024 * 1024 * mib, 0, 64*mib - 1, -1, false, 0},
		{"1 % more, written 10 s ago → in 20 s", 1024 * mib, 100 * mib, 200 * mib, 10 * time.Second, false, 20 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := Input{Replica: &longhorn.Replica{}, Observed: Observed{AllocatedBytes: tc.is}, Now: now}
			in.Replica.Spec.VolumeSize = longhorn.Bytes(tc.size)
			p := Plan{Status: longhorn.ReplicaStatus{AllocatedBytes: tc.was}}
			if tc.ago >= 0 {
				p.Status.AllocatedAt = types.Timestamp(now.Add(-tc.ago))
			}
			showAllocated(in, &p)
			want := tc.was
			if tc.written {
				want = tc.is
			}
			assert.Equal(t, want, p.Status.AllocatedBytes)
			assert.Equal(t, tc.after, p.After)
			assert.Equal(t, tc.written, p.Status.AllocatedAt == types.Timestamp(now))
		})
	}
}

func TestARunningReplicaShowsTheSpaceThatItTakes(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	r := placed(wanted, func(r *longhorn.Replica) { r.Status.DirectoryCreated = true })
	p := plan(Input{
		Replica: r, Observed: Observed{Phase: types.PhaseRunning, Process: "p", AllocatedBytes: 1 << 30}, Now: now, Owner: "n",
		Disk:    Disk{Known: true, Ready: true, Path: "/var/lib/longhorn"},
		Manager: &longhorn.InstanceManager{Status: longhorn.InstanceManagerStatus{IP: "10.0.0.1"}},
	})
	assert.Equal(t, int64(1<<30), p.Status.AllocatedBytes)
	assert.Equal(t, types.Timestamp(now), p.Status.AllocatedAt)
}
