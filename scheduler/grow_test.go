package scheduler

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestGrowthShortage(t *testing.T) {
	disk := func(change func(*Disk)) Snapshot {
		d := Disk{UUID: "u", Path: "/d", StorageMaximum: 1000, StorageAvailable: 900, StorageScheduled: 500}
		change(&d)
		return Snapshot{Settings: Settings{MinimalAvailablePercent: 25, OverProvisioningPercent: 100}, Nodes: []Node{{Name: "n", Disks: []Disk{d}}}}
	}
	for _, tc := range []struct {
		name   string
		delta  int64
		change func(*Disk)
		lacks  string
	}{
		{"there is room → nothing", 500, func(*Disk) {}, ""},
		{"more is promised than the disk has → refused", 501, func(*Disk) {}, "storageScheduled 500 bytes + size 501 bytes"},
		{"the bytes leave the least that must be free → nothing", 400, func(d *Disk) { d.StorageAvailable = 650 }, ""},
		{"one byte less would be free → refused", 401, func(d *Disk) { d.StorageAvailable = 650 }, "must be at least 250"},
		{"what is reserved counts as free", 401, func(d *Disk) { d.StorageAvailable, d.StorageReserved = 650, 1 }, ""},
		{"the disk is full already → refused", 1, func(d *Disk) { d.StorageAvailable = 250 }, "must be more than 250"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			lacks := GrowthShortage(disk(tc.change), map[string]int64{"u": tc.delta, "unknown": 1 << 40})
			if tc.lacks == "" {
				assert.Empty(t, lacks)
				return
			}
			assert.Contains(t, lacks, tc.lacks)
			assert.Contains(t, lacks, "more do not fit on disk u")
		})
	}
}
