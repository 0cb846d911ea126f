package scheduler

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// tenThousand returns a cluster of 10,000 disks on 1,000 nodes in ten zones.
func tenThousand() Snapshot {
	s := Snapshot{Settings: defaults}
	for i := range 1000 {
		n := inZone(fmt.Sprintf("zone-%d", i%10), node(fmt.Sprintf("node-%04d", i)))
		for j := range 10 {
			d := disk(fmt.Sprintf("disk-%d", j), 500+int64((7*i+13*j)%400))
			d.UUID = n.Name + d.Name
			n.Disks = append(n.Disks, d)
		}
		s.Nodes = append(s.Nodes, n)
	}
	return s
}

// BenchmarkScheduleAll places the three replicas of a volume among 10,000 disks.
func BenchmarkScheduleAll(b *testing.B) {
	for name, req := range map[string]Request{
		"any of 10000 disks":  {SizeBytes: 10},
		"none of 10000 disks": {SizeBytes: 10000},
		"the disks of a node": {SizeBytes: 10, HardNodeAffinity: "node-0500"},
		"tags that none has":  {SizeBytes: 10, DiskSelector: []string{"nvme"}},
	} {
		b.Run(name, func(b *testing.B) {
			s := tenThousand()
			b.ReportAllocs()
			for b.Loop() {
				_, err := ScheduleAll(s, req, 3)
				require.Equal(b, name == "any of 10000 disks", err == nil)
			}
		})
	}
}
