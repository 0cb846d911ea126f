package liveness

import (
	"slices"
	"time"
)

// tellSilence is how long a share is silent before the callbacks of OnSilence are called: a server that starts again is silent for less.
const tellSilence = 5 * time.Second

// silence is that of one share, whose node may live.
type silence struct {
	since time.Time // when the first question without an answer was asked
	told  bool
}

// SilentSince is since when the share at a health address (types.ShareHealthAddress) answers no question. Zero: it answers, or that is not known,
// because it has not answered this process yet, the leader's loop was late a moment ago, or no questions are asked (SettingRWXVolumeFastFailover).
func (d *Detector) SilentSince(address string) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.silences[address].since
}

// OnSilence has f called with the volume of each share that is silent for tellSilence, once. It must be called before Run; f must return at once.
func (d *Detector) OnSilence(f func(volume string)) { d.silent = append(d.silent, f) }

// silencesLocked takes in which shares have answered since the last tick, and returns the volumes of those to tell about. After a late tick all
// silences begin again: the answers may wait in this process.
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
