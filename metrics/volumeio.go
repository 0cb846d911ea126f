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

// sectorBytes is the unit of /proc/diskstats, regardless of the device's own sector size.
const sectorBytes = 512

// counters are the kernel's counters of one direction of a device, since the device was created.
type counters struct{ requests, bytes, milliseconds uint64 }

func (c counters) minus(b counters) counters {
	return counters{c.requests - b.requests, c.bytes - b.bytes, c.milliseconds - b.milliseconds}
}

func (c counters) isBefore(b counters) bool {
	return c.requests < b.requests || c.bytes < b.bytes || c.milliseconds < b.milliseconds
}

// traffic has the kernel's counters of a device.
type traffic struct{ read, written counters }

// pace is the traffic of a volume over some seconds.
type pace struct {
	traffic
	over time.Duration
}

// volumeIO measures the traffic of volumes' users with the kernel's counters of the volumes' devices. It measures
// between two scrapes, but over at least shortest. A scrape that comes sooner gets the previous value again.
type volumeIO struct {
	clock clock.PassiveClock

	mu   sync.Mutex
	last map[string]*reading // guarded by mu; by volume
}

// reading is a device's traffic at a time, and the pace before it.
type reading struct {
	device  Device
	at      time.Time
	traffic traffic
	pace    pace
	isKnown bool // pace is valid
}

func newVolumeIO(c clock.PassiveClock) *volumeIO {
	return &volumeIO{clock: c, last: map[string]*reading{}}
}

// next takes a reading of a volume's device and returns the volume's pace, or false if it is not known yet. If the
// device is another one, or its counters have decreased, the measurement restarts.
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

// keep deletes the readings of all volumes that are not listed.
func (v *volumeIO) keep(volumes []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for volume := range v.last {
		if !slices.Contains(volumes, volume) {
			delete(v.last, volume)
		}
	}
}

// volumes sends the traffic of the devices of volumes that are attached to this node, and whether their file systems
// are read-only.
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
		n.deps.Log.WithError(err).Warn("metrics lack the traffic of volumes")
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

// pace sends the six values of a volume. Without requests the latency is 0.
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

// diskstats reads /proc/diskstats. The file lists all devices of the machine, also inside a container.
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

// parseDiskstats parses a line: major, minor, name, and then for reads and for writes: requests, merged requests,
// sectors and milliseconds.
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

// mountedReadOnly returns, for each device with a mounted file system, whether the whole file system is read-only. A
// read-only mount alone does not count, because the same file system may have writable mounts.
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
