package faults

import (
	"bufio"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Log lines that show events which are not visible from outside. If the processes change these lines, nothing is
// counted, and the test fails at its end.
var (
	saidEqual      = regexp.MustCompile(`msg="Equalizing the replicas after an unclean stop".* generation=(\d+) .*regions=(\d+) `)
	saidSlow       = regexp.MustCompile(`msg="Replica failed" .*has not answered a request that another replica answered`)
	saidSlowSync   = regexp.MustCompile(`msg="A sync was slow as ordered"`)
	saidLacks      = regexp.MustCompile(`msg="The replica receives only the regions that changed while it was away" .*regions=(\d+) `)
	saidGoesOn     = regexp.MustCompile(`msg="The replica receives only the regions that an interrupted rebuild did not copy" .*regions=(\d+) `)
	saidDropped    = regexp.MustCompile(`msg="(Caches were dropped as ordered|A file was dropped from the cache)" pages=[1-9]`)
	saidStayed     = regexp.MustCompile(`msg="Pages that were lost stayed in the cache" pages=[1-9]`)
	saidFailedSync = regexp.MustCompile(`msg="A sync fails as ordered"`)
)

// countLogged adds the events in the nodes' logs about the volume to the tally.
func (v *volume) countLogged() error {
	members := map[string]int{} // the number of members at the start of an engine, by its generation
	v.mu.Lock()
	for _, r := range append(slices.Clone(v.older), v.run) {
		if r != nil {
			r.mu.Lock()
			members[strconv.FormatInt(r.generation, 10)] = r.members
			r.mu.Unlock()
		}
	}
	v.mu.Unlock()
	for _, n := range v.nodes {
		err := n.readLog(func(line string) {
			v.mu.Lock()
			defer v.mu.Unlock()
			if saidDropped.MatchString(line) {
				v.seen.dropped++
			}
			if saidStayed.MatchString(line) {
				v.seen.stayed++
			}
			if !strings.HasSuffix(line, " volume="+v.name+"\n") {
				return
			}
			if saidSlow.MatchString(line) {
				v.seen.slow++
			}
			if saidSlowSync.MatchString(line) {
				v.seen.slowSyncs++
			}
			if saidFailedSync.MatchString(line) {
				v.seen.failedSyncs++
			}
			if said := saidLacks.FindStringSubmatch(line); said != nil && !isAllRegions(said[1]) {
				v.seen.deltas++
			}
			if said := saidGoesOn.FindStringSubmatch(line); said != nil && !isAllRegions(said[1]) {
				v.seen.goneOn++
			}
			if said := saidEqual.FindStringSubmatch(line); said != nil && members[said[1]] > 1 && !isAllRegions(said[2]) {
				v.seen.partial++
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// readLog reads the complete lines that were not read before.
func (n *node) readLog(each func(line string)) error {
	f, err := os.Open(n.logFile())
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Seek(n.logRead, io.SeekStart); err != nil {
		return err
	}
	for r := bufio.NewReader(f); ; {
		line, err := r.ReadString('\n')
		if err != nil { // an incomplete line is read the next time
			return nil
		}
		n.logRead += int64(len(line))
		each(line)
	}
}

// isAllRegions reports whether a number may be the number of all regions of a volume, before or after it grew.
func isAllRegions(count string) bool {
	return slices.ContainsFunc(volumeSizes, func(size int64) bool {
		return count == strconv.FormatInt((size+regionBytes-1)/regionBytes, 10)
	})
}
