package metrics

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

// Device is the number of a block device.
type Device struct{ Major, Minor uint32 }

func (d Device) String() string { return fmt.Sprintf("%d:%d", d.Major, d.Minor) }

// sectorBytes is the unit of /proc/diskstats, whatever the device's own is.
const sectorBytes = 512

// counters are what the kernel has counted of one direction of a device since the device was made.
type counters struct{ requests, bytes, milliseconds uint64 }

func (c counters) minus(b counters) counters {
	return counters{c.requests - b.requests, c.bytes - b.bytes, c.milliseconds - b.milliseconds}
}

func (c counters) isBefore(b counters) bool {
	return c.requests < b.requests || c.bytes < b.bytes || c.milliseconds < b.milliseconds
}

// traffic is what the kernel has counted of a device.
type traffic struct{ read, written counters }

// pace is the traffic of a volume over some seconds.
type pace struct {
	traffic
	over time.Duration
}

// volumeIO measures what users of volumes do by the kernel's counters of the volumes' devices: between two scrapes, but over no less than
// shortest. It shows the last figure again to those who ask sooner.
type volumeIO struct {
	clock clock.PassiveClock

	mu   sync.Mutex
	last map[string]*reading // guarded by mu; by volume
}

// reading is a device's traffic at a time, and the pace up to then.
type reading struct {
	device  Device
	at      time.Time
	traffic traffic
	pace    pace
	isKnown bool // pace is
}

func newVolumeIO(c clock.PassiveClock) *volumeIO {
	return &volumeIO{clock: c, last: map[string]*reading{}}
}

// next takes a reading of a volume's device, and returns its pace; false until it is known. A device that is another one, or whose
// counters went back, begins anew.
func (v *volumeIO) next(volume string, device Device, t traffic) (pace, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	now, before := v.clock.Now(), v.last[volume]
	if before == nil || before.device != device || t.read.isBefore(before.traffic.read) || t.written.isBefore(before.traffic.written) {
		v.last[volume] = &reading{device: device, at: now, traffic: t}
		return pace{}, false
	}
	if over := now.Sub(before.at); over >= shortest {
		p := pace{traffic{t.read.minus(before.traffic.read), t.written.minus(before.traffic.written)}, over}
		*before = reading{device: device, at: now, traffic: t, pace: p, isKnown: true}
	}
	return before.pace, before.isKnown
}

// keep forgets the volumes that are not named.
func (v *volumeIO) keep(volumes []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for volume := range v.last {
		if !slices.Contains(volumes, volume) {
			delete(v.last, volume)
		}
	}
}

// volumes sends what is seen of the devices of volumes that are attached to this node.
func (n *Node) volumes(s series) {
	devices := map[string]Device{}
	var names []string
	for _, e := range list(n.deps.Engines, "engines", n.deps.Log) {
		if e.Status.Endpoint == "" || e.Status.CurrentState != longhorn.InstanceStateRunning {
			continue
		}
		if device, ok := n.deps.DeviceAt(e.Status.Endpoint); ok {
			devices[e.Spec.VolumeName] = device
			names = append(names, e.Spec.VolumeName)
		}
	}
	n.io.keep(names)
	if len(devices) == 0 {
		return
	}
	counted, err := diskstats(n.deps.Proc)
	if err != nil {
		n.deps.Log.WithError(err).Warn("metrics lack what users of volumes do")
	}
	readOnly, err := mountedReadOnly(n.deps.HostMounts)
	if err != nil {
		n.deps.Log.WithError(err).Warn("metrics lack which file systems are read-only")
	}
	for volume, device := range devices {
		if t, ok := counted[device]; ok {
			if p, isKnown := n.io.next(volume, device, t); isKnown {
				s.pace(p, n.deps.Node, volume)
			}
		}
		if is, isMounted := readOnly[device]; isMounted {
			s.gauge(volumeReadOnly, oneIf(is), n.deps.Node, volume)
		}
	}
}

// pace sends the six figures of a volume. Where there were no requests their latency is 0.
func (s series) pace(p pace, labels ...string) {
	for _, d := range []struct {
		counters
		throughput, iops, latency *Family
	}{
		{p.read, volumeReadThroughput, volumeReadIOPS, volumeReadLatency},
		{p.written, volumeWriteThroughput, volumeWriteIOPS, volumeWriteLatency},
	} {
		s.gauge(d.throughput, float64(d.bytes)/p.over.Seconds(), labels...)
		s.gauge(d.iops, float64(d.requests)/p.over.Seconds(), labels...)
		s.gauge(d.latency, float64(d.milliseconds)*1e6/float64(max(d.requests, 1)), labels...)
	}
}

// diskstats reads /proc/diskstats. It lists all devices of the machine, whatever container reads it.
func diskstats(proc string) (map[Device]traffic, error) {
	file, err := os.Open(filepath.Join(proc, "diskstats"))
	if err != nil {
		return nil, fmt.Errorf("read the devices' counters: %w", err)
	}
	defer file.Close()
	found := map[Device]traffic{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if device, t, ok := parseDiskstats(lines.Text()); ok {
			found[device] = t
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the devices' counters: %w", err)
	}
	return found, nil
}

// parseDiskstats reads a line: major, minor, name, and then of reads and of writes requests, merged ones, sectors and milliseconds.
func parseDiskstats(line string) (Device, traffic, bool) {
	const first, last = 3, 10
	fields := strings.Fields(line)
	if len(fields) <= last {
		return Device{}, traffic{}, false
	}
	var numbers [last + 1]uint64
	for i := range numbers {
		if i == 2 {
			continue // the name
		}
		n, err := strconv.ParseUint(fields[i], 10, 64)
		if err != nil {
			return Device{}, traffic{}, false
		}
		numbers[i] = n
	}
	of := func(at int) counters { return counters{numbers[at], numbers[at+2] * sectorBytes, numbers[at+3]} }
	return Device{uint32(numbers[0]), uint32(numbers[1])}, traffic{of(first), of(first + 4)}, true
}

// mountedReadOnly tells of each device with a mounted file system whether the file system as a whole is read-only. A mount that is
// read-only does not count, for others of its file system may not be.
func mountedReadOnly(mountinfo string) (map[Device]bool, error) {
	file, err := os.Open(mountinfo)
	if err != nil {
		return nil, fmt.Errorf("read the node's mounts: %w", err)
	}
	defer file.Close()
	found := map[Device]bool{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		mount, filesystem, _ := strings.Cut(lines.Text(), " - ")
		fields, of := strings.Fields(mount), strings.Fields(filesystem)
		var d Device
		if len(fields) < 3 || len(of) < 3 {
			continue
		}
		if _, err := fmt.Sscanf(fields[2], "%d:%d", &d.Major, &d.Minor); err == nil && d.Major != 0 {
			found[d] = slices.Contains(strings.Split(of[2], ","), "ro")
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the node's mounts: %w", err)
	}
	return found, nil
}
