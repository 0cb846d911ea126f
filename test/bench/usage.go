package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// usage is the memory and the processor time of a process.
type usage struct {
	pssBytes  int64 // resident; each process counts its part of a shared page
	rssBytes  int64 // resident
	peakBytes int64 // the maximum of the resident memory
	cpu       time.Duration
}

// tick is the unit of times in /proc/<pid>/stat: USER_HZ, 100 everywhere.
const tick = 10 * time.Millisecond

// usageOf returns the sum of a process and its descendants.
func usageOf(pid int) (usage, error) {
	sum, err := usageOfOne(pid)
	if err != nil {
		return usage{}, err
	}
	children, err := childrenOf(pid)
	if err != nil {
		return usage{}, err
	}
	for _, child := range children {
		u, err := usageOf(child)
		if err != nil {
			return usage{}, err
		}
		sum.pssBytes, sum.rssBytes, sum.peakBytes = sum.pssBytes+u.pssBytes, sum.rssBytes+u.rssBytes, sum.peakBytes+u.peakBytes
		sum.cpu += u.cpu
	}
	return sum, nil
}

// childrenOf lists the processes that a process has started by any of its threads.
func childrenOf(pid int) ([]int, error) {
	lists, err := filepath.Glob(fmt.Sprint("/proc/", pid, "/task/*/children"))
	if err != nil {
		return nil, err
	}
	var children []int
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // the thread has exited
		}
		if err != nil {
			return nil, fmt.Errorf("list what process %d started: %w", pid, err)
		}
		for _, field := range strings.Fields(string(text)) {
			child, err := strconv.Atoi(field)
			if err != nil {
				return nil, fmt.Errorf("list what process %d started: %w", pid, err)
			}
			children = append(children, child)
		}
	}
	return children, nil
}

// usageOfOne reads /proc (proc(5)).
func usageOfOne(pid int) (usage, error) {
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
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:]) // the name before it may contain any character
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
