package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// usage is what a process takes.
type usage struct {
	pssBytes  int64 // resident, shared pages in parts
	rssBytes  int64 // resident
	peakBytes int64 // the most that was ever resident
	cpu       time.Duration
}

// tick is the unit of times in /proc/<pid>/stat: USER_HZ, 100 everywhere.
const tick = 10 * time.Millisecond

// usageOf reads /proc (proc(5)).
func usageOf(pid int) (usage, error) {
	dir := fmt.Sprint("/proc/", pid, "/")
	var text [3]string
	for i, name := range []string{"smaps_rollup", "status", "stat"} {
		b, err := os.ReadFile(dir + name)
		if err != nil {
			return usage{}, fmt.Errorf("look at process %d: %w", pid, err)
		}
		text[i] = string(b)
	}
	return parseUsage(text[0], text[1], text[2])
}

func parseUsage(smaps, status, stat string) (u usage, err error) {
	if u.pssBytes, err = kilobytes(smaps, "Pss:"); err != nil {
		return u, err
	}
	if u.rssBytes, err = kilobytes(smaps, "Rss:"); err != nil {
		return u, err
	}
	if u.peakBytes, err = kilobytes(status, "VmHWM:"); err != nil {
		return u, err
	}
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:]) // the name before may hold anything
	if len(fields) < 13 {
		return u, fmt.Errorf("process statistics %q are not understood", stat)
	}
	for _, field := range fields[11:13] { // utime, stime
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return u, fmt.Errorf("process statistics %q: %w", stat, err)
		}
		u.cpu += time.Duration(n) * tick
	}
	return u, nil
}

// kilobytes reads a line such as "Pss:   123 kB", in bytes.
func kilobytes(text, key string) (int64, error) {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, key); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("%s %w", key, err)
			}
			return n << 10, nil
		}
	}
	return 0, fmt.Errorf("no line %s", key)
}
