package share

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/longhorn-lep/longhorn-manager/share/firewall"
	"github.com/longhorn-lep/longhorn-manager/share/ganesha"
	"github.com/longhorn-lep/longhorn-manager/util/boottime"
)

const (
	// confirmTimeout is how long the first server waits for an answer that confirms the engine, if the process has a
	// list of lost clients.
	confirmTimeout = 3 * time.Second
	// servesTimeout is the time limit for one small write before the first client is served. A question takes no
	// longer than that.
	servesTimeout = time.Second
	// dialTimeout is the time limit for a new connection to a node that may be down. dialAttempts is how often the last
	// round tries one: a packet may be lost.
	dialTimeout  = 250 * time.Millisecond
	dialAttempts = 2
	// maxFormerAge is the greatest allowed time since the former server last asked. In a shorter time no leader of an
	// earlier release can take over and start a server with the same engine that asks nothing. A lease takes 8 s, a pod
	// about 2 s, and the verdict on its node 5 s.
	maxFormerAge = 15 * time.Second
	// maxRoundAge is how long after the start of the last round a record may be removed.
	maxRoundAge = time.Second
)

var (
	// errVolumeTimeout means that it is not known which records the volume has lost.
	errVolumeTimeout = errors.New("the volume did not answer while records of lost clients were removed; the next pod decides again")
	// errListUsed means that an earlier process has taken the list, and may have removed the records.
	errListUsed = errors.New("an earlier process has used the list of lost clients; a client that has come back since may have locks")
	// errAllAnswer means that no node in the list is down.
	errAllAnswer = errors.New("all listed nodes answer")
	// errIsolated means that the silence of other nodes proves nothing.
	errIsolated = errors.New("no other node answers this pod either, so it is not known which nodes are down")
)

// lostClients removes the records of clients that were lost with their nodes, before the first server of this process
// starts. Otherwise that server would wait for them for the whole grace period. To remove a record means to give the
// client's locks to others. So all of these facts must be known:
//
//	no process has used the list        taken, durable on the volume before anything else is done
//	                                    (ganesha.TakeList)
//	the list is about the former server the engine before this one has the generation in the list
//	the former server reaches no client it asked its engine, all members of the volume had to confirm, and one has heard
//	                                    no question for firewall.UnreachableAfter, and one in the last maxFormerAge
//	the node does not answer            new connections to it, in rounds while the former server may reach clients and
//	                                    in one round after that; in the last round another node answers
//	now                                 the last round started less than maxRoundAge ago
//
// The decision is separate for each node. If one of these facts is not known, the record stays. Package lostmodel
// explores these rules.
type lostClients struct {
	o       Options
	v       *volume
	hasList bool  // there is a list, and this process may use it
	reason  error // the reason if it may not
}

// takeLostClients must be called before the port can open. After it returns, no later process uses the list.
func takeLostClients(o Options, v *volume) *lostClients {
	l := &lostClients{o: o, v: v}
	if len(o.LostClients.Nodes) == 0 || o.ReadOnly {
		return l
	}
	type result struct {
		isFirst bool
		err     error
	}
	taken := make(chan result, 1)
	v.within(abandonTimeout, func() {
		isFirst, err := ganesha.TakeList(v.recovery, o.LostClients.After)
		taken <- result{isFirst, err}
	})
	select {
	case r := <-taken:
		l.hasList, l.reason = r.isFirst, r.err
		if !r.isFirst && r.err == nil {
			l.reason = errListUsed
		}
	default:
		l.reason = errVolumeTimeout
	}
	return l
}

// confirmThenServe returns the question whether the engine is in force. The question is answered only after it is
// durable that this engine serves clients, so the port does not open earlier. If the volume does not store that in
// time, the share is served nevertheless.
func (l *lostClients) confirmThenServe() func(context.Context, uint64, bool) (Answer, error) {
	ask := l.o.InForce
	if ask == nil || l.o.ReadOnly {
		return ask
	}
	var once sync.Once
	return func(ctx context.Context, device uint64, limited bool) (Answer, error) {
		a, err := ask(ctx, device, limited)
		if err == nil && (a.Verdict == firewall.Yes || a.Verdict == firewall.CannotTell) {
			once.Do(func() {
				l.v.within(servesTimeout, func() {
					if err := ganesha.Serves(l.v.recovery, a.Generation); err != nil {
						l.o.Log.WithError(err).Warn("Cannot store on the volume that its engine serves clients")
					}
				})
			})
		}
		return a, err
	}
}

// drop returns the identifiers of clients with records that are gone, or may be gone. After an error, no server may
// start: records may still be removed.
func (l *lostClients) drop(ctx context.Context, g guard) (dropped []string, err error) {
	if l.reason != nil {
		l.o.Log.WithError(l.reason).Info("The NFS server waits for clients of nodes that are down")
		return l.o.LostClients.IDs(), nil
	}
	if !l.hasList {
		return nil, nil
	}
	ids := l.recorded()
	if len(ids) == 0 {
		return nil, nil
	}
	began, ids, err := l.waitUntilUnreachable(ctx, g, ids)
	if err == nil && len(ids) == 0 {
		err = errAllAnswer
	}
	if err != nil {
		l.o.Log.WithError(err).Info("The NFS server waits for clients of nodes that were down. Their locks may still be in use")
		return nil, nil
	}
	return l.remove(ids, began)
}

// remove removes the records of clients with these identifiers, while the last round is valid.
func (l *lostClients) remove(ids []string, began time.Duration) (dropped []string, err error) {
	isLost := func(client string) bool {
		id, ok := l.o.LostClients.Of(client)
		return ok && slices.Contains(ids, id) && boottime.Now()-began < maxRoundAge
	}
	type result struct {
		clients []string
		err     error
	}
	ended := make(chan result, 1)
	l.v.within(abandonTimeout, func() {
		clients, err := ganesha.DropLost(l.v.recovery, isLost)
		ended <- result{clients, err}
	})
	select {
	case r := <-ended:
		if r.err != nil {
			l.o.Log.WithError(r.err).Warn("The NFS server waits for some clients of nodes that are down")
		}
		if len(r.clients) > 0 {
			l.o.Log.WithField("clients", r.clients).Warn("The NFS server does not wait for clients of nodes that are down. Their open files and locks are released")
		}
		return l.idsOf(r.clients), nil
	default:
		return l.o.LostClients.IDs(), errVolumeTimeout
	}
}

// recorded are the identifiers in the list that belong to a client with a record; none if the volume does not answer.
func (l *lostClients) recorded() []string {
	found := make(chan []string, 1)
	l.v.within(abandonTimeout, func() {
		clients, err := ganesha.Clients(l.v.recovery)
		if err != nil {
			l.o.Log.WithError(err).Warn("The records of clients cannot be read")
		}
		found <- l.idsOf(clients)
	})
	select {
	case ids := <-found:
		return ids
	default:
		return nil
	}
}

// idsOf are the identifiers in the list that these clients have, each once.
func (l *lostClients) idsOf(clients []string) (ids []string) {
	for _, name := range clients {
		if id, ok := l.o.LostClients.Of(name); ok && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// waitUntilUnreachable waits until the former server no longer reaches clients. It returns the nodes that did not
// answer in all that time, nor in a last round afterwards, and the start of that round.
func (l *lostClients) waitUntilUnreachable(ctx context.Context, g guard, ids []string) (began time.Duration, unreachable []string, err error) {
	unreachableAt, err := l.formerUnreachableAt(ctx, g)
	if err != nil {
		return 0, nil, err
	}
	l.o.Log.WithField("clients", ids).Info("The share manager checks whether nodes that are down answer again, until the former server can no longer reach clients")
	for len(ids) > 0 {
		began = boottime.Now()
		left := unreachableAt - began
		if left <= 0 {
			isIsolated := make(chan bool, 1)
			go func() { isIsolated <- !l.reachesOthers(ctx) }()
			ids = l.withoutAnswer(ctx, ids, dialTimeout, dialAttempts)
			if alone := <-isIsolated; alone {
				return 0, nil, errIsolated
			}
			return began, ids, ctx.Err()
		}
		ids = l.withoutAnswer(ctx, ids, min(left, dialTimeout), 1)
		select { // a node that refuses is not asked again at once
		case <-time.After(min(unreachableAt, began+dialTimeout) - boottime.Now()):
		case <-ctx.Done():
			return 0, nil, ctx.Err()
		}
	}
	return 0, nil, nil
}

// withoutAnswer are the nodes that answer no new connection.
func (l *lostClients) withoutAnswer(ctx context.Context, ids []string, limit time.Duration, attempts int) (unreachable []string) {
	answers := make([]bool, len(l.o.LostClients.Nodes))
	var dials sync.WaitGroup
	for i, n := range l.o.LostClients.Nodes {
		if slices.Contains(ids, n.ClientID) {
			dials.Go(func() { answers[i] = l.answer(ctx, n.Addresses, limit, attempts) })
		}
	}
	dials.Wait()
	for i, n := range l.o.LostClients.Nodes {
		if slices.Contains(ids, n.ClientID) && !answers[i] {
			unreachable = append(unreachable, n.ClientID)
		}
	}
	return unreachable
}

// reachesOthers reports whether a node answers that is up and is not this pod's own. If none answers, a network policy,
// or the network of this node, may be the reason why no node answers.
func (l *lostClients) reachesOthers(ctx context.Context) bool {
	var addresses []string
	for _, c := range l.o.LostClients.Controls {
		if l.o.PodNode != "" && c.Node != l.o.PodNode {
			addresses = append(addresses, c.Address)
		}
	}
	return len(addresses) > 0 && l.answer(ctx, addresses, dialTimeout, dialAttempts)
}

func (l *lostClients) answer(ctx context.Context, addresses []string, limit time.Duration, attempts int) bool {
	for range attempts {
		limited, cancel := context.WithTimeout(ctx, limit)
		answers := l.o.Answers(limited, addresses)
		cancel()
		if answers {
			return true
		}
	}
	return false
}

// formerUnreachableAt is when the server at the engine in the list no longer reaches a client. The error says which
// fact is not known.
func (l *lostClients) formerUnreachableAt(ctx context.Context, g guard) (time.Duration, error) {
	var a confirmation
	if g.first == nil {
		return 0, errors.New("this pod cannot close its NFS port, so it asks nothing about the former server")
	}
	select {
	case a = <-g.first:
	case <-time.After(confirmTimeout):
		return 0, fmt.Errorf("the volume's engine was not confirmed within %s", confirmTimeout)
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	switch before := a.Before.Generation; {
	case before == 0:
		return 0, errors.New("the time when the former server's engine was last confirmed is not known")
	case before != l.o.LostClients.After || before >= a.Generation:
		return 0, fmt.Errorf("the list of nodes that are down is about engine generation %d, but generation %d preceded the present generation %d",
			l.o.LostClients.After, before, a.Generation)
	case a.Before.Age > maxFormerAge:
		return 0, fmt.Errorf("the former server's engine was last confirmed %s ago; another server may have served since", a.Before.Age.Round(time.Second))
	}
	return a.at - a.Before.Age + firewall.UnreachableAfter, nil
}
