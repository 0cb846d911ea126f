package types

import (
	"time"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/util/backoff"
)

// Delays of a replica that failed, before it is rebuilt.
const (
	// A replica that failed is rebuilt again firstRebuildBackoff × 2^n after its failure, n being how
	// often it failed in a row, at most MaxRebuildBackoff. The first time it is rebuilt after RebuildSettle:
	// that is how long it takes to see that a process has died.
	firstRebuildBackoff = 10 * time.Second
	MaxRebuildBackoff   = 5 * time.Minute
	RebuildSettle       = 3 * time.Second
	// A replica whose process was replaced since, as by a restart of its node, may well be
	// sound now. It waits all the same: a rebuild may be what ends the process.
	restartRebuildBackoff = 30 * time.Second
)

// RebuildDelay is how long a replica that a process serves has to wait until it is rebuilt,
// from the stored time of its failure. process is the one that serves it now (status.uuid).
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
