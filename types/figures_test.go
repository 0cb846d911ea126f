package types

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestSizesHaveUnits(t *testing.T) {
	for bytes, want := range map[int64]string{
		0: "0 bytes", 1: "1 byte", 1023: "1023 bytes", -200: "-200 bytes", 1 << 10: "1 KiB", 1536: "1.5 KiB", 8 << 30: "8 GiB",
		8_000_000_000: "7.45 GiB", 5 << 40: "5 TiB", -3 << 30: "-3 GiB", math.MaxInt64: "8 EiB", math.MinInt64: "-8 EiB",
	} {
		assert.Equal(t, want, SizeText(bytes))
	}
}

func TestASizeThatMayBeRequestedIsRoundedDown(t *testing.T) {
	for bytes, want := range map[int64]string{0: "0 bytes", 1 << 10: "1 KiB", 2<<30 - 1: "1.99 GiB", 1<<30 + 380<<20: "1.37 GiB", 10 << 20: "10 MiB", math.MaxInt64: "8 EiB"} {
		assert.Equal(t, want, SizeTextDown(bytes))
	}
}

func TestARoundedSizeIsFollowedByItsBytes(t *testing.T) {
	for bytes, want := range map[int64]string{
		0: "0 bytes", 1: "1 byte", 1023: "1023 bytes", 1 << 10: "1 KiB", 1536: "1.5 KiB", 64 << 20: "64 MiB", 5 << 40: "5 TiB",
		64<<20 + 1: "64 MiB (67108865 bytes)", 1500: "1.46 KiB (1500 bytes)", 1<<40 + 2<<20: "1 TiB (1099513724928 bytes)",
		1<<60 + 1<<58: "1.25 EiB", 1<<60 + 1<<57: "1.13 EiB (1297036692682702848 bytes)", math.MaxInt64: "8 EiB (9223372036854775807 bytes)",
	} {
		assert.Equal(t, want, ExactSizeText(bytes))
	}
}

func TestMessagesThatDifferInFiguresAlone(t *testing.T) {
	for _, tc := range []struct {
		name, a, b string
		want       bool
	}{
		{"the same → no", "2 disks", "2 disks", false},
		{"another size → yes", "storageAvailable 7.45 GiB - required 0 bytes", "storageAvailable 7.12 GiB - required 0 bytes", true},
		{"another percentage → yes", "(25% of storageMaximum 8 GiB)", "(30% of storageMaximum 9 GiB)", true},
		{"two numbers side by side → yes", "used by 1 2 3", "used by 4 5 6", true},
		{"another unit → no", "7 GiB", "7 MiB", false},
		{"another replica → no", "replica vol-r-1 on node a", "replica vol-r-2 on node a", false},
		{"another address → no", "at 10.0.0.1:9600", "at 10.0.0.2:9600", false},
		{"another clause → no", "2 disks", "2 disks, 1 node", false},
	} {
		t.Run(tc.name, func(t *testing.T) { assert.Equal(t, tc.want, DiffersInFigures(tc.a, tc.b)) })
	}
}
