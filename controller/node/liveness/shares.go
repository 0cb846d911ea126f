package liveness

import (
	"slices"
	"time"
)

// tellSilence is how long a share is silent before the callbacks of OnSilence are called. A server that restarts is
// silent for less time.
const tellSilence = 5 * time.Second

// silence is the silence of one share, while its node may live.
type silence struct {
	since time.Time // when the leader asked the first question without an answer
	told  bool
}

// SilentSince is since when the share at a health address (types.ShareHealthAddress) has answered no question. Zero: it
// answers, or this is not known. It is not known in three cases: the share has not answered this process yet, the
// leader's loop was late a moment ago, or the leader asks no questions (SettingRWXVolumeFastFailover).
func (d *Detector) SilentSince(address string) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.silences[address].since
}

// OnSilence registers f, which is called once with the volume of each share that is silent for tellSilence. OnSilence
// must be called before Run. f must return at once.
func (d *Detector) OnSilence(f func(volume string)) { d.silent = append(d.silent, f) }

// silencesLocked records which shares have answered since the last tick, and returns the volumes to report. After a
// late tick all silences start again, because the answers may still wait in this process. The caller holds mu.
func (d *Detector) silencesLocked(now time.Time, asked map[string]bool) (volumes []string) {
	last := d.count.lastTick
	isLate := now.Sub(last) > d.count.rules.interval+d.count.rules.lateness
	silences := map[string]silence{}
	for _, s := range d.shares {
		if isLate || !asked[s.address] || !d.asked[s.address] || !d.heard[s.address] || d.fresh[s.address] {
			continue
		}
		is := d.silences[s.address]
		if is.since.IsZero() {
			is.since = last
		}
		if !is.told && now.Sub(is.since) >= tellSilence {
			is.told = true
			volumes = append(volumes, s.volume)
		}
		silences[s.address] = is
	}
	d.silences = silences
	slices.Sort(volumes)
	return volumes
}
