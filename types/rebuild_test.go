package types

import (
	"testing"
	"time"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

func TestAReplicaThatFailedOftenerWaitsLonger(t *testing.T) {
	failed := time.Date(2026, 1, 2, 10, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		name           string
		retries        int
		served, serves string
		after, want    time.Duration
	}{
		{"it failed once → the time it takes to see that a process died", 0, "a", "a", 0, 3 * time.Second},
		{"that time has passed → it is due", 0, "a", "a", 3 * time.Second, 0},
		{"one rebuild failed → twice the first backoff", 1, "a", "a", 0, 20 * time.Second},
		{"many failed → five minutes and no more", 60, "a", "a", 0, 5 * time.Minute},
		{"many failed, in a process that was replaced → half a minute", 60, "a", "b", 0, 30 * time.Second},
		{"part of the delay has passed → the rest", 60, "a", "a", 4 * time.Minute, time.Minute},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := longhorn.ReplicaSpec{FailedAt: Timestamp(failed), RebuildRetryCount: tc.retries, ServedUUID: tc.served}
			if got := RebuildDelay(&s, tc.serves, failed.Add(tc.after)); got != tc.want {
				t.Errorf("the delay is %v, want %v", got, tc.want)
			}
		})
	}
}
