package share

import (
	"context"

	"github.com/longhorn-lep/longhorn-manager/share/ganesha"
)

// records keeps in order what the servers of this process leave on the volume for their successors.
type records struct {
	v        *volume
	readOnly bool
	departed *ganesha.Departures
	clients  *ganesha.Recording
	room     ganesha.Ballast
	epochs   *epochs
}

func newRecords(o Options, v *volume, health *healthService) *records {
	return &records{
		v: v, readOnly: o.ReadOnly,
		departed: ganesha.NewDepartures(v.recovery, o.Log),
		clients:  ganesha.NewRecording(health.recovery.found, o.Log),
		room:     ganesha.Ballast{Recovery: v.recovery, Log: o.Log},
		epochs:   newEpochs(v),
	}
}

// serverStarts is called before each server starts, and returns its epoch.
func (r *records) serverStarts() (epoch uint32) {
	r.departed.ServerStarts()
	r.clients.ServerStarts()
	if !r.readOnly {
		r.v.within(abandonPatience, r.room.GiveUp)
	}
	return r.epochs.next()
}

// hear receives each line of the server's own.
func (r *records) hear(line []byte) {
	r.departed.Hear(line)
	r.clients.Hear(line)
}

// run works in the background until ctx ends or stop is called. stop waits for what is under way, unless the volume does not answer.
func (r *records) run(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	departed, spared := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(departed)
		r.departed.Run(ctx)
	}()
	go func() {
		defer close(spared)
		if !r.readOnly {
			r.room.Run(ctx)
		}
	}()
	return func() {
		cancel()
		r.v.within(abandonPatience, func() { <-departed; <-spared })
	}
}
