package types

import (
	"time"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/util/backoff"
)

// Delays before a failed replica is rebuilt.
const (
	// A failed replica is rebuilt again firstRebuildBackoff × 2^n after its failure, at most MaxRebuildBackoff. n is
	// the number of failures in a row. The first rebuild starts after RebuildSettle, which is the time needed to
	// detect that a process has died.
	firstRebuildBackoff = 10 * time.Second
	MaxRebuildBackoff   = 5 * time.Minute
	RebuildSettle       = 3 * time.Second
	// A replica whose process was replaced after the failure, for example because its node restarted, may be sound
	// now. It waits anyway, because a rebuild may be the reason why the process dies.
	restartRebuildBackoff = 30 * time.Second
)

// RebuildDelay returns how long a replica that a process serves has to wait before its rebuild, counted from the
// stored time of its failure. process is the process that serves it now (status.uuid).
func RebuildDelay(s *longhorn.ReplicaSpec, process string, now time.Time) time.Duration {
	delay, most := RebuildSettle, MaxRebuildBackoff
	if s.ServedUUID != "" && process != s.ServedUUID {
		most = restartRebuildBackoff
	}
	if n := s.RebuildRetryCount; n > 0 {
		delay = backoff.After(firstRebuildBackoff, most, n)
	}
	return Until(s.FailedAt, delay, now)
}
