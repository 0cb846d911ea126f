package scheduler

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestShortage(t *testing.T) {
	tests := map[string]struct {
		disk           Disk
		settings       Settings
		size, required int64
		want           string
	}{
		"an empty disk takes anything that fits": {
			disk: disk("d", 1000), settings: defaults, size: 1000,
		},
		"no size known": {
			disk: Disk{StorageAvailable: 10}, settings: defaults,
			want: "its size is unknown: storageMaximum is 0 bytes",
		},
		"nothing free": {
			disk: disk("d", 0), settings: defaults,
			want: "it is full: storageAvailable is 0 bytes of storageMaximum 1000 bytes",
		},
		"free space one above the minimum": {disk: disk("d", 251), settings: defaults},
		"free space equal to the minimum → blocked": {
			disk: disk("d", 250), settings: defaults,
			want: "storageAvailable 250 bytes - required 0 bytes must be more than 250 bytes (25% of storageMaximum 1000 bytes, setting storage-minimal-available-percentage)",
		},
		"a copy leaves one above the minimum": {disk: disk("d", 500), settings: defaults, required: 249},
		"a copy leaves just the minimum → blocked": {
			disk: disk("d", 500), settings: defaults, required: 250,
			want: "storageAvailable 500 bytes - required 250 bytes must be more than 250 bytes (25% of storageMaximum 1000 bytes, setting storage-minimal-available-percentage)",
		},
		"a minimum of 0% and one byte free": {disk: disk("d", 1), settings: Settings{OverProvisioningPercent: 100}},
		"a minimum of 100% → always blocked": {
			disk: disk("d", 1000), settings: Settings{MinimalAvailablePercent: 100, OverProvisioningPercent: 100},
			want: "storageAvailable 1000 bytes - required 0 bytes must be more than 1000 bytes (100% of storageMaximum 1000 bytes, setting storage-minimal-available-percentage)",
		},
		"promises equal to the disk": {
			disk: diskBut(disk("d", 1000), func(d *Disk) { d.StorageScheduled = 600 }), settings: defaults, size: 400,
		},
		"promises one beyond the disk → blocked": {
			disk: diskBut(disk("d", 1000), func(d *Disk) { d.StorageScheduled = 600 }), settings: defaults, size: 401,
			want: "storageScheduled 600 bytes + size 401 bytes must not exceed 1000 bytes (100% of storageMaximum 1000 bytes - storageReserved 0 bytes, setting storage-over-provisioning-percentage)",
		},
		"a reservation counts on the virtual side": {
			disk: diskBut(disk("d", 1000), func(d *Disk) { d.StorageReserved = 300 }), settings: defaults, size: 701,
			want: "storageScheduled 0 bytes + size 701 bytes must not exceed 700 bytes (100% of storageMaximum 1000 bytes - storageReserved 300 bytes, setting storage-over-provisioning-percentage)",
		},
		"a reservation does not count on the physical side": {
			disk: diskBut(disk("d", 260), func(d *Disk) { d.StorageReserved = 300 }), settings: defaults, size: 700,
		},
		"over-provisioning of 200%": {
			disk:     diskBut(disk("d", 1000), func(d *Disk) { d.StorageReserved = 300 }),
			settings: with(defaults, func(s *Settings) { s.OverProvisioningPercent = 200 }), size: 1400,
		},
		"over-provisioning of 0% → nothing but an empty promise": {
			disk:     disk("d", 1000),
			settings: with(defaults, func(s *Settings) { s.OverProvisioningPercent = 0 }), size: 1,
			want: "storageScheduled 0 bytes + size 1 byte must not exceed 0 bytes (0% of storageMaximum 1000 bytes - storageReserved 0 bytes, setting storage-over-provisioning-percentage)",
		},
		"a reservation beyond the disk → blocked even without size": {
			disk: diskBut(disk("d", 1000), func(d *Disk) { d.StorageReserved = 1200 }), settings: defaults,
			want: "storageScheduled 0 bytes + size 0 bytes must not exceed -200 bytes (100% of storageMaximum 1000 bytes - storageReserved 1.17 KiB, setting storage-over-provisioning-percentage)",
		},
		"percentages are rounded down": {
			disk: diskBut(disk("d", 25), func(d *Disk) { d.StorageMaximum = 99 }), settings: defaults, // 24.75 → 24
		},
		"the greatest size does not overflow": {
			disk: diskBut(disk("d", 1000), func(d *Disk) { d.StorageScheduled = 1 }), settings: defaults, size: math.MaxInt64,
			want: "storageScheduled 1 byte + size 8 EiB must not exceed 1000 bytes (100% of storageMaximum 1000 bytes - storageReserved 0 bytes, setting storage-over-provisioning-percentage)",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tt.want, shortage(tt.disk, tt.settings, tt.size, tt.required))
		})
	}
}

func TestPercentOf(t *testing.T) {
	tests := map[string]struct{ v, percent, want int64 }{
		"a part":                     {1000, 25, 250},
		"rounded toward zero":        {199, 50, 99},
		"a negative value":           {-199, 50, -99},
		"more than the whole":        {1000, 250, 2500},
		"a negative percentage":      {1000, -5, 0},
		"no overflow on the way":     {math.MaxInt64, 100, math.MaxInt64},
		"a product beyond 64 bits":   {1 << 62, 50, 1 << 61},
		"a result beyond int64":      {math.MaxInt64, 101, math.MaxInt64},
		"a result beyond 64 bits":    {math.MaxInt64, math.MaxInt64, math.MaxInt64},
		"the least negative at 100%": {math.MinInt64, 100, -math.MaxInt64},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tt.want, percentOf(tt.v, tt.percent))
		})
	}
}

func TestUsable(t *testing.T) {
	tests := map[string]struct {
		available, reserved, scheduled, want int64
	}{
		"free, less reserved and promised": {900, 300, 200, 400},
		"never below zero":                 {900, 300, 700, 0},
		"reserved beyond free":             {100, 300, 0, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d := Disk{StorageAvailable: tt.available, StorageReserved: tt.reserved, StorageScheduled: tt.scheduled}
			assert.Equal(t, tt.want, usable(d))
		})
	}
}

func TestDiskSchedulable(t *testing.T) {
	tests := map[string]struct {
		disk            Disk
		ok              bool
		reason, message string
	}{
		"a healthy disk": {
			disk("d", 1000), true, "", "Disk d(/d) on node n is schedulable",
		},
		"a full disk": {
			disk("d", 200), false, "DiskPressure",
			"Disk d(/d) on the node n is not schedulable for more replica; storageAvailable 200 bytes - required 0 bytes must be more than 250 bytes (25% of storageMaximum 1000 bytes, setting storage-minimal-available-percentage)",
		},
		"promises beyond the disk": {
			diskBut(disk("d", 900), func(d *Disk) { d.StorageScheduled = 1001 }), false, "DiskPressure",
			"Disk d(/d) on the node n is not schedulable for more replica; storageScheduled 1001 bytes + size 0 bytes must not exceed 1000 bytes (100% of storageMaximum 1000 bytes - storageReserved 0 bytes, setting storage-over-provisioning-percentage)",
		},
		"a disk that is not ready": {
			diskBut(disk("d", 1000), func(d *Disk) { d.Ready = false }), false, "DiskNotReady",
			"Disk d(/d) on node n is not ready",
		},
		"a disk that the user closed, tagged or empties has room all the same": {
			diskBut(disk("d", 1000), func(d *Disk) {
				d.AllowScheduling, d.EvictionRequested, d.Schedulable, d.Tags = false, true, false, []string{"t"}
			}), true, "", "Disk d(/d) on node n is schedulable",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			ok, reason, message := DiskSchedulable("n", tt.disk, defaults)
			assert.Equal(t, tt.ok, ok)
			assert.Equal(t, tt.reason, reason)
			assert.Equal(t, tt.message, message)
		})
	}
}
