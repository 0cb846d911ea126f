package share

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/longhorn-lep/longhorn-manager/share/firewall"
	"github.com/longhorn-lep/longhorn-manager/share/ganesha"
	"github.com/longhorn-lep/longhorn-manager/util/boottime"
	"github.com/longhorn-lep/longhorn-manager/util/logfields"
)

// answerPatience is how long the first server waits for an answer that confirms the engine, where it has lost clients.
const answerPatience = 3 * time.Second

// errVolumeSilent means that it is not known which records the volume has lost.
var errVolumeSilent = errors.New("the volume did not answer while records of lost clients were removed; the next pod decides again")

// dropLost removes the records of lost clients before the first server of this process starts: it would wait for them for the whole grace
// period. Setting a record aside gives the client's locks away, so the former server must no longer reach a client on that node:
//
//	the former server is mute          it asked its engine, all members of the volume had to confirm, and one has heard no question for
//	                                   firewall.MuteAfter
//	the list is about that server      the engine before this one has the generation that the list names
//
// Where one of these is not known, all records stay. No server may start after an error: records may still go. No leader writes a list yet;
// docs/SHARES.md says what is missing.
func dropLost(ctx context.Context, o Options, v *volume, g guard) error {
	if len(o.LostClients.IDs) == 0 || o.ReadOnly {
		return nil
	}
	waiting := lostClients(o, v)
	if len(waiting) == 0 {
		return nil
	}
	generation, err := formerIsMute(ctx, o, g)
	if err != nil {
		o.Log.WithError(err).WithField("clients", waiting).Info("The NFS server waits for clients of nodes that are down: their locks may still be in use")
		return nil
	}
	ended := make(chan error, 1)
	v.within(abandonPatience, func() {
		dropped, err := ganesha.DropLost(v.recovery, generation, o.LostClients.Has)
		o.Log.WithField("clients", dropped).WithField(logfields.Generation, generation).Warn("The NFS server does not wait for clients of nodes that are down: their open files and locks are free")
		ended <- err
	})
	select {
	case err := <-ended:
		if err != nil {
			o.Log.WithError(err).Warn("The NFS server waits for some clients of nodes that are down")
		}
		return nil
	default:
		return errVolumeSilent
	}
}

// lostClients are those that have a record; none if the volume does not answer.
func lostClients(o Options, v *volume) []string {
	found := make(chan []string, 1)
	v.within(abandonPatience, func() {
		clients, err := ganesha.Clients(v.recovery)
		if err != nil {
			o.Log.WithError(err).Warn("The records of clients cannot be read")
		}
		found <- slices.DeleteFunc(clients, func(name string) bool { return !o.LostClients.Has(name) })
	})
	select {
	case clients := <-found:
		return clients
	default:
		return nil
	}
}

// formerIsMute waits until the server of the engine that the list of lost clients names no longer reaches a client, and returns the generation of
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
	left := firewall.MuteAfter - a.Before.Age - (boottime.Now() - a.at)
	select {
	case <-time.After(left):
		return a.Generation, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}
