package explain

// The conditions of a volume about its snapshots. Both are True while something is wrong.
const (
	conditionTooManySnapshots   = "TooManySnapshots"
	conditionSnapshotSpaceWaits = "SnapshotSpaceWaits"
)

// snapshotAdvice is for these conditions. Their messages say how many snapshots there are, and what the space waits for.
var snapshotAdvice = map[cause]advice{
	{KindVolume, conditionTooManySnapshots, ""}: {Warning, "volume {volume} has many snapshots", []Step{
		{"Delete the snapshots that are not needed", "kubectl longhorn snapshot list {volume}"},
	}, false},
	{KindVolume, conditionSnapshotSpaceWaits, ""}: {Warning, "volume {volume} has deleted snapshots whose space is not freed until something changes", []Step{
		{"Do what the lines above say; then replicas free the space without a request", "kubectl longhorn explain volume {volume}"},
	}, false},
}
