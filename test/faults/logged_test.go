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

// Log lines that show what cannot be seen from outside. Should the processes log it in other words, nothing is counted, and the test
// fails at its end.
var (
	saidEqual      = regexp.MustCompile(`msg="Making replicas equal after an unclean stop".* generation=(\d+) .*regions=(\d+) `)
	saidSlow       = regexp.MustCompile(`msg="Replica failed" .*has not answered a request that another replica answered`)
	saidSlowSync   = regexp.MustCompile(`msg="A sync was slow as ordered"`)
	saidLacks      = regexp.MustCompile(`msg="Replica gets what was changed while it was away" .*regions=(\d+) `)
	saidGoesOn     = regexp.MustCompile(`msg="Replica gets what an interrupted copy has left" .*regions=(\d+) `)
	saidDropped    = regexp.MustCompile(`msg="(Caches were dropped as ordered|A file was dropped from the cache)" pages=[1-9]`)
	saidStayed     = regexp.MustCompile(`msg="Pages that were lost stayed in the cache" pages=[1-9]`)
	saidFailedSync = regexp.MustCompile(`msg="A sync fails as ordered"`)
)

// countLogged adds to the tally what the nodes have said of the volume.
func (v *volume) countLogged() error {
	members := map[string]int{} // that an engine began to serve with, by its generation
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

// readLog goes through the whole lines that were not gone through before.
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
		if err != nil { // what has no end yet is read the next time
			return nil
		}
		n.logRead += int64(len(line))
		each(line)
	}
}

// isAllRegions says whether a number may be all regions of a volume, before it grew or after.
func isAllRegions(count string) bool {
	return slices.ContainsFunc(volumeSizes, func(size int64) bool {
		return count == strconv.FormatInt((size+regionBytes-1)/regionBytes, 10)
	})
}
