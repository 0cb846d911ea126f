package membership

const (
	minRegionBytes = 4 << 20
	mostRegions    = 256 << 10
)

// RegionBytes is the size of one region of a replica's intent map for a volume of a size: 4 MiB up to 1 TiB, then doubled as often
// as it takes to need at most 256 Ki regions. So a map takes at most 33 KiB, in memory and on disk, and a first write to a
// region makes at most 1/256 Ki of a large volume subject to a comparison after a crash.
func RegionBytes(sizeBytes int64) int64 {
	region := int64(minRegionBytes)
	for (sizeBytes-1)/region >= mostRegions {
		region *= 2
	}
	return region
}

// CanGrow tells whether a volume of a size can grow to another: the regions of the intent maps, which the size gives, must stay as they
// are. Otherwise members would differ in their regions for a while.
func CanGrow(from, to int64) bool { return to > from && RegionBytes(to) == RegionBytes(from) }
