package metrics

import (
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/procfs"
	"k8s.io/utils/clock"
)

// shortest is the minimum time over which CPU usage is measured. The kernel counts in hundredths of a second, so a
// shorter time gives no meaningful value. A scrape that comes sooner gets the previous value again.
const shortest = 5 * time.Second

// usage reads the kernel's values for the machine and for this process. In a container, /proc/stat and /proc/meminfo
// describe the whole machine.
type usage struct {
	proc             string
	clock            clock.PassiveClock
	machine, process rate
	pod              rate // of the instance manager
}

func newUsage(proc string, c clock.PassiveClock) *usage { return &usage{proc: proc, clock: c} }

// figures are a CPU usage and a memory usage.
type figures struct {
	milliCPU    float64
	isMeasured  bool // milliCPU is valid: the first reading alone gives no value
	memoryBytes int64
}

func (f figures) send(s series, cpu, memory *Family, labels ...string) {
	if f.isMeasured {
		s.gauge(cpu, f.milliCPU, labels...)
	}
	s.bytes(memory, f.memoryBytes, labels...)
}

// ofMachine returns the usage of the whole machine: CPU time that was neither idle nor waiting for I/O, and memory
// that is not available to a new process without swapping.
func (u *usage) ofMachine() (figures, error) {
	fs, err := procfs.NewFS(u.proc)
	if err != nil {
		return figures{}, fmt.Errorf("read the machine's figures: %w", err)
	}
	stat, err := fs.Stat()
	if err != nil {
		return figures{}, fmt.Errorf("read the machine's CPU time: %w", err)
	}
	memory, err := fs.Meminfo()
	if err != nil {
		return figures{}, fmt.Errorf("read the machine's memory: %w", err)
	}
	if memory.MemTotalBytes == nil || memory.MemAvailableBytes == nil {
		return figures{}, fmt.Errorf("read the machine's memory: %s/meminfo lacks MemTotal or MemAvailable", u.proc)
	}
	t := stat.CPUTotal
	// The time of guests is part of user and nice.
	f := figures{memoryBytes: int64(*memory.MemTotalBytes) - int64(*memory.MemAvailableBytes)}
	f.milliCPU, f.isMeasured = u.machine.next(u.clock.Now(), t.User+t.Nice+t.System+t.IRQ+t.SoftIRQ+t.Steal)
	return f, nil
}

// ofProcess returns the usage of this process.
func (u *usage) ofProcess() (figures, error) {
	fs, err := procfs.NewFS(u.proc)
	if err != nil {
		return figures{}, fmt.Errorf("read this process's figures: %w", err)
	}
	self, err := fs.Self()
	if err != nil {
		return figures{}, fmt.Errorf("find this process: %w", err)
	}
	stat, err := self.Stat()
	if err != nil {
		return figures{}, fmt.Errorf("read this process's CPU time and memory: %w", err)
	}
	f := figures{memoryBytes: int64(stat.ResidentMemory())}
	f.milliCPU, f.isMeasured = u.process.next(u.clock.Now(), stat.CPUTime())
	return f, nil
}

// rate converts a counter of CPU seconds to a CPU usage.
type rate struct {
	mu       sync.Mutex // guards all fields below
	isBegun  bool
	at       time.Time // time of the reading with which the next one is compared
	seconds  float64   // the counter at that time
	milliCPU float64   // the last value
	isKnown  bool      // milliCPU is valid
}

// next takes a reading of the counter at now. It returns the usage since an earlier reading, in thousandths of a CPU,
// or false until there are two. If the counter has decreased, for example because the machine is another one, the
// measurement restarts.
func (r *rate) next(now time.Time, seconds float64) (milliCPU float64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.isBegun || seconds < r.seconds {
		r.isBegun, r.isKnown, r.at, r.seconds = true, false, now, seconds
		return 0, false
	}
	if passed := now.Sub(r.at); passed >= shortest {
		r.milliCPU, r.isKnown = 1000*(seconds-r.seconds)/passed.Seconds(), true
		r.at, r.seconds = now, seconds
	}
	return r.milliCPU, r.isKnown
}
