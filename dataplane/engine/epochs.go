package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
)

// storeRetryInterval is how long the engine waits before it asks the last member again to store an epoch.
const storeRetryInterval = time.Second

// memberFailed removes a member from the data path. It must not block, because it is called from the goroutine that
// reads replies. From here on, no change is sent to the member. A change that it lacks is not acknowledged until an
// epoch without it is in force (updateEpoch). The last member stays as long as its connection does: users receive its
// errors. If the replica that is being rebuilt fails, only the rebuild ends.
func (e *Engine) memberFailed(m *member, err error) {
	if isFenced(err) {
		e.fail(failure{
			reason: ReasonFenced, members: []MemberState{{Name: m.name, Mode: ModeERR, Error: err.Error()}},
			err: fmt.Errorf("replica %s: %w: %w", m.name, ErrFenced, err),
		})
		return
	}
	e.mu.Lock()
	ro := e.mirror.roster.Load()
	role := ro.role(m)
	last := role == membership.Serving && len(ro.serving) == 1
	if e.ctx.Err() != nil || role == membership.Leaving || role == membership.Left || last {
		if b := e.rebuilding(); role == membership.Left && b != nil && b.copiesTo(m) {
			b.cancel(err)
		}
		e.mu.Unlock()
		if last && m.isLost() {
			e.fail(failure{
				reason: ReasonMemberFailed, members: []MemberState{{Name: m.name, Mode: ModeERR, Error: err.Error()}},
				err: fmt.Errorf("the last healthy replica, %s, failed: %w", m.name, err),
			})
		}
		return
	}
	e.mirror.roster.Store(ro.without(m))
	e.state.set(MemberState{Name: m.name, Mode: ModeERR, Error: err.Error()})
	if role == membership.Joining {
		close(m.gone)
	}
	e.mu.Unlock()
	m.drop()
	e.log.WithError(err).WithField("replica", m.name).Warn("Replica failed")
	e.wakeMemberChange()
	e.cfg.OnChange()
}

// wakeMemberChange wakes changeMembers.
func (e *Engine) wakeMemberChange() {
	select {
	case e.membersChanged <- struct{}{}:
	default:
	}
}

// changeMembers updates the epoch to the members until the engine stops.
func (e *Engine) changeMembers() {
	for {
		select {
		case <-e.membersChanged:
		case <-e.quit:
			return
		case <-e.ctx.Done():
			return
		}
		if !e.updateEpoch(e.quit) {
			return
		}
	}
}

// updateEpoch proposes epochs until one is in force that lists exactly the serving members. One proposal excludes all
// members that failed before it. Members that fail later are expelled by the next proposal. updateEpoch returns false
// if the engine ends or quit is closed first.
func (e *Engine) updateEpoch(quit <-chan struct{}) bool {
	for {
		next, needed := e.planNext()
		if !needed {
			return true
		}
		if !e.putInForce(next, nil, quit) {
			return false
		}
	}
}

// planNext returns the epoch that lists the serving members. A replica with a complete copy starts to serve with this
// epoch. The object may hold the epoch as soon as it is proposed. So from then on nothing may be acknowledged without
// the new member.
func (e *Engine) planNext() (next membership.Epoch, needed bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	ro, current := e.mirror.roster.Load(), e.state.Epoch
	var failed []string
	for _, name := range current.Members {
		if !slices.ContainsFunc(ro.serving, func(m *member) bool { return m.name == name }) {
			failed = append(failed, name)
		}
	}
	if len(failed) > 0 {
		next, err := membership.PlanExpel(current, failed)
		if err != nil {
			panic("BUG: " + err.Error())
		}
		return next, true
	}
	b := e.rebuilding()
	if b == nil || !b.complete || ro.joining == nil || ro.joining != b.target {
		return current, false
	}
	e.mirror.roster.Store(ro.promoted())
	return membership.PlanJoin(current, b.target.name), true
}

// store makes every serving member store an epoch that the API object holds. A member that cannot store it has failed.
// The last member is asked repeatedly until it can, because without it no replica could prove the epoch. Lack of space
// is judged as in a change. If some members have stored the epoch, a full member has failed. If all are full, expelling
// them would not help, and all are asked again.
func (e *Engine) store(epoch membership.Epoch, quit <-chan struct{}) bool {
	payload, err := json.Marshal(epoch)
	if err != nil {
		panic("BUG: an epoch cannot be encoded: " + err.Error())
	}
	for {
		ro := e.mirror.roster.Load()
		full, err := e.storeOnce(ro, epoch, payload)
		if err == nil && len(full) == 0 {
			return true
		}
		if err == nil && len(full) < len(ro.serving) {
			for _, m := range full {
				e.memberFailed(m, fmt.Errorf("store epoch %s: %w", epoch, nbd.ENOSPC))
			}
		}
		if e.mirror.roster.Load() != ro {
			continue // with the remaining members
		}
		e.log.WithError(err).WithField("full", len(full)).Warn("No replica can store the new epoch; the engine asks the replicas again")
		if !e.pause(storeRetryInterval, quit) {
			return false
		}
	}
}

// storeOnce asks each serving member once. It returns the members that lack the space; the error comes from other
// members.
func (e *Engine) storeOnce(ro *roster, epoch membership.Epoch, payload []byte) (full []*member, err error) {
	var mu sync.Mutex
	err = e.mirror.onServing(ro, func(b *member) error {
		_, err := b.Control(background, membership.OpRecordEpoch, payload)
		if errors.Is(err, nbd.ENOSPC) {
			mu.Lock()
			defer mu.Unlock()
			full = append(full, b)
			return nil
		}
		if err != nil {
			return fmt.Errorf("store epoch %s: %w", epoch, err)
		}
		return nil
	})
	mu.Lock() // a request that was left behind in a disk may still answer
	defer mu.Unlock()
	return slices.Clone(full), err
}

// pause returns false if the engine ends or quit is closed first.
func (e *Engine) pause(d time.Duration, quit <-chan struct{}) bool {
	timer := e.cfg.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
		return true
	case <-quit:
	case <-e.ctx.Done():
	}
	return false
}

// inForce publishes an epoch that the API object and all members hold, and releases the changes that waited for it.
func (e *Engine) inForce(epoch membership.Epoch) {
	e.mu.Lock()
	ro, gone := e.mirror.roster.Load().withoutLeft(epoch)
	e.mirror.roster.Store(ro)
	e.state.Epoch = epoch
	for _, m := range gone {
		close(m.gone)
	}
	if b := e.rebuilding(); b != nil && b.target != nil && epoch.Has(b.target.name) && ro.role(b.target) == membership.Serving {
		e.state.set(MemberState{Name: b.target.name, Mode: ModeRW, Progress: 100})
		b.joinOnce.Do(func() { close(b.joined) })
	}
	e.mu.Unlock()
	e.log.WithField("epoch", epoch.String()).Info("Epoch is in force")
	e.cfg.OnChange()
}

// errRemoved is the reason why a member without a fault was expelled.
var errRemoved = errors.New("it was removed from the volume")

// askLeaving asks each failed member that an epoch still lists whether another engine has taken over the volume. It
// does not wait.
func (e *Engine) askLeaving() {
	if e.cfg.Refuses == nil {
		return
	}
	for _, m := range e.mirror.roster.Load().leaving {
		if m.local || m.spec.Address == "" || !m.isBeingAsked.CompareAndSwap(false, true) {
			continue
		}
		e.tasks.Go(func() {
			defer m.isBeingAsked.Store(false)
			ctx, cancel := context.WithTimeout(e.ctx, overtakenTimeout)
			defer cancel()
			if err := e.cfg.Refuses(ctx, m.spec); errors.Is(err, ErrFenced) {
				e.fail(failure{
					reason: ReasonFenced, members: []MemberState{{Name: m.name, Mode: ModeERR, Error: err.Error()}},
					err: fmt.Errorf("replica %s: %w", m.name, err),
				})
			}
		})
	}
}
