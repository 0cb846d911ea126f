package share

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/longhorn-lep/longhorn-manager/share/firewall"
	"github.com/longhorn-lep/longhorn-manager/share/ganesha"
	"github.com/longhorn-lep/longhorn-manager/util/logfields"
)

// answerPatience is how long the first server waits for an answer that confirms the engine, where it has lost clients.
const answerPatience = 3 * time.Second

// dropLost removes the records of lost clients before the first server of this process starts: it would wait for them for the whole grace
// period. Setting a record aside gives the client's locks away, so the former server must reach no client on that node any more:
//
//	the leader and a witness cannot reach the node     else the client may come back, and keeps its record (the list is the leader's)
//	the former server is mute                          it asked its engine, all members of the volume had to confirm, and one has heard
//	                                                   no question for firewall.MuteAfter
//	the list is about that server                      the engine before this one has the generation that the list names
//
// Where one of these is not known, all records stay.
func dropLost(ctx context.Context, o Options, v *volume, g guard) {
	if len(o.LostClients.IDs) == 0 || o.ReadOnly {
		return
	}
	var waiting []string
	v.within(abandonPatience, func() {
		clients, err := ganesha.Clients(v.recovery)
		if err != nil {
			o.Log.WithError(err).Warn("The records of clients cannot be read")
		}
		waiting = slices.DeleteFunc(clients, func(name string) bool { return !o.LostClients.Has(name) })
	})
	if len(waiting) == 0 {
		return
	}
	generation, err := formerIsMute(ctx, o, g)
	if err != nil {
		o.Log.WithError(err).WithField("clients", waiting).Info("The NFS server waits for clients of nodes that are down: their locks may still be in use")
		return
	}
	v.within(abandonPatience, func() {
		dropped, err := ganesha.DropLost(v.recovery, generation, o.LostClients.Has)
		if err != nil {
			o.Log.WithError(err).Warn("The NFS server waits for clients of nodes that are down")
		}
		o.Log.WithField("clients", dropped).WithField(logfields.Generation, generation).Warn("The NFS server does not wait for clients of nodes that are down: their open files and locks are free")
	})
}

// formerIsMute waits until the server of the engine that the list of lost clients names reaches no client any more, and returns the generation of
// the engine that serves now. The error says what is not known.
func formerIsMute(ctx context.Context, o Options, g guard) (generation int64, err error) {
	var a heard
	select {
	case a = <-g.first:
	case <-time.After(answerPatience):
		return 0, fmt.Errorf("the volume's engine was not confirmed in %s", answerPatience)
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	switch before := a.Before.Generation; {
	case before == 0:
		return 0, fmt.Errorf("it is not known when the former server's engine was last confirmed")
	case before != o.LostClients.After:
		return 0, fmt.Errorf("the list of nodes that are down is about the engine of generation %d, and generation %d was before this one", o.LostClients.After, before)
	}
	left := firewall.MuteAfter - a.Before.Age - (sinceBoot() - a.at)
	select {
	case <-time.After(left):
		return a.Generation, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}
