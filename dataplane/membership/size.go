package membership

import "fmt"

const (
	minRegionBytes = 4 << 20
	mostRegions    = 256 << 10
)

// RegionBytes returns the size of one region of a replica's intent map for a volume of the given size. It is 4 MiB up
// to 1 TiB. Then it is doubled until at most 256 Ki regions are needed. So a map takes at most 33 KiB, in memory and on
// disk. A first write to a region makes at most 1/256 Ki of a large volume subject to a comparison after a crash.
func RegionBytes(sizeBytes int64) int64 {
	region := int64(minRegionBytes)
	for (sizeBytes-1)/region >= mostRegions {
		region *= 2
	}
	return region
}

// CheckRegions refuses a region size with which no replica of the given size is created. An engine needs memory for
// each region of its volume, and the replica at the other end of a connection reports the region size.
func CheckRegions(sizeBytes, regionBytes int64) error {
	if regionBytes <= 0 || regionBytes&(regionBytes-1) != 0 || (sizeBytes-1)/regionBytes >= mostRegions {
		return fmt.Errorf("regions of %d bytes are not valid for a size of %d bytes", regionBytes, sizeBytes)
	}
	return nil
}

// CanGrow reports whether a volume can grow from one size to the other. The region size follows from the volume's size,
// and must stay the same. Otherwise members would differ in their regions for a while.
func CanGrow(from, to int64) bool { return to > from && RegionBytes(to) == RegionBytes(from) }
