package metrics

import (
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/procfs"
	"k8s.io/utils/clock"
)

// shortest is the least time over which a use of CPU is measured: the kernel counts in hundredths of a second, so that a shorter one says
// nothing. Who asks sooner is told the last figure again.
const shortest = 5 * time.Second

// usage reads what the kernel says of the machine and of this process. A container sees the whole machine's /proc/stat and /proc/meminfo.
type usage struct {
	proc             string
	clock            clock.PassiveClock
	machine, process rate
	pod              rate // of the instance manager
}

func newUsage(proc string, c clock.PassiveClock) *usage { return &usage{proc: proc, clock: c} }

// figures are a use of CPU and of memory.
type figures struct {
	milliCPU    float64
	isMeasured  bool // milliCPU is: a first reading alone gives none
	memoryBytes int64
}

func (f figures) send(s series, cpu, memory *Family, labels ...string) {
	if f.isMeasured {
		s.gauge(cpu, f.milliCPU, labels...)
	}
	s.bytes(memory, f.memoryBytes, labels...)
}

// ofMachine is the use of the whole machine: CPU time that was neither idle nor waiting for I/O, and memory that is not available to a new
// process without swapping.
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
	// A guest's time is part of user and nice.
	f := figures{memoryBytes: int64(*memory.MemTotalBytes) - int64(*memory.MemAvailableBytes)}
	f.milliCPU, f.isMeasured = u.machine.next(u.clock.Now(), t.User+t.Nice+t.System+t.IRQ+t.SoftIRQ+t.Steal)
	return f, nil
}

// ofProcess is the use of this process.
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

// rate makes a use of CPU of a counter of CPU seconds.
type rate struct {
	mu       sync.Mutex // guards all below
	isBegun  bool
	at       time.Time // of the reading that the next one is compared with
	seconds  float64   // as read then
	milliCPU float64   // the last figure
	isKnown  bool      // there is a last figure
}

// next takes a reading of the counter at now and returns the use since an earlier one, in thousandths of a CPU; false until there was one.
// A counter that went back, as on another machine, begins anew.
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
