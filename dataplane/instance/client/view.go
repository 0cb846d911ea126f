package client

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	protobuf "google.golang.org/protobuf/proto"

	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
)

// ErrGap means that a message is a difference from a state that the client does not hold. The client must open another
// stream, which starts with a whole state.
var ErrGap = errors.New("the message is a difference from a state that was not received")

// Change is what differs between two consecutive states of a View.
type Change struct {
	// All means that anything may have changed: there was no state before, or the process or its disks differ. Then the
	// lists are empty.
	All bool
	// Replicas and Engines have the entries that changed, appeared or disappeared, ordered by name.
	Replicas []Changed[*proto.ReplicaState]
	Engines  []Changed[*proto.EngineState]
}

// Changed is one entry that changed. Before is nil if it appeared, and Now is nil if it disappeared. If a name has
// several entries for a moment, Before and Now are the first ones.
type Changed[T any] struct {
	Name        string
	Before, Now T
}

// View is what a client holds of the state of a process: after each message, exactly the whole state that the process
// had at the revision of the message. The zero View holds nothing.
type View struct {
	state  *proto.State // never changed, but replaced; nil: nothing is known
	synced bool         // differences from state may come
}

// State is the state that the client holds; nil if it holds none. Its lists are ordered by name. It must not be
// changed.
func (v *View) State() *proto.State { return v.state }

// Reopen must be called before the messages of another stream. The first of them must be a whole state. The View still
// holds the last state, so that Apply can report what differs from it.
func (v *View) Reopen() { v.synced = false }

// Lose makes the View hold nothing, because the process does not answer.
func (v *View) Lose() { *v = View{} }

// Apply adds a message and reports what changed. After ErrGap the View is unchanged, and accepts only a whole state.
func (v *View) Apply(m *proto.State) (Change, error) {
	before := v.state
	now := &proto.State{Info: m.GetInfo(), Disks: m.GetDisks(), Revision: m.GetRevision()}
	var c Change
	if m.GetSince() == 0 {
		now.Replicas, now.Engines = sorted(m.GetReplicas()), sorted(m.GetEngines())
		c.Replicas, c.Engines = compare(before.GetReplicas(), now.GetReplicas()), compare(before.GetEngines(), now.GetEngines())
	} else {
		if !v.synced || m.GetSince() != before.GetRevision() || m.GetRevision() <= m.GetSince() {
			v.synced = false
			return Change{}, ErrGap
		}
		if now.Info == nil {
			now.Info = before.GetInfo()
		}
		now.Replicas, c.Replicas = replace(before.GetReplicas(), m.GetReplicas(), m.GetRemovedReplicas())
		now.Engines, c.Engines = replace(before.GetEngines(), m.GetEngines(), m.GetRemovedEngines())
	}
	v.state, v.synced = now, true
	if before == nil || !equal(before.GetInfo(), now.GetInfo()) || !slices.EqualFunc(before.GetDisks(), now.GetDisks(), equal) {
		return Change{All: true}, nil
	}
	return c, nil
}

type entry interface {
	protobuf.Message
	GetName() string
}

func equal[T protobuf.Message](a, b T) bool { return protobuf.Equal(a, b) }

func sorted[T entry](list []T) []T {
	byName := func(a, b T) int { return cmp.Compare(a.GetName(), b.GetName()) }
	if slices.IsSortedFunc(list, byName) {
		return list
	}
	list = slices.Clone(list)
	slices.SortStableFunc(list, byName)
	return list
}

// compare returns the names whose entries differ in two ordered lists.
func compare[T entry](before, now []T) []Changed[T] {
	var changes []Changed[T]
	for len(before)+len(now) > 0 {
		var name string
		if len(now) == 0 || len(before) > 0 && before[0].GetName() < now[0].GetName() {
			name = before[0].GetName()
		} else {
			name = now[0].GetName()
		}
		var was, is []T
		was, before = cut(before, name)
		is, now = cut(now, name)
		if !slices.EqualFunc(was, is, equal) {
			changes = append(changes, Changed[T]{name, first(was), first(is)})
		}
	}
	return changes
}

// replace returns an ordered list in which other entries take the place of those with the same names, without the
// removed ones. All names are reported as changed: an entry may have been removed and have come back.
func replace[T entry](held, sent []T, removed []string) (now []T, changes []Changed[T]) {
	if len(sent)+len(removed) == 0 {
		return held, nil
	}
	sent = sorted(sent)
	names := slices.Clone(removed)
	for _, e := range sent {
		names = append(names, e.GetName())
	}
	slices.Sort(names)
	now = make([]T, 0, len(held)+len(sent))
	for _, name := range slices.Compact(names) {
		at, _ := slices.BinarySearchFunc(held, name, func(e T, name string) int { return strings.Compare(e.GetName(), name) })
		now = append(now, held[:at]...)
		var was, is []T
		was, held = cut(held[at:], name)
		is, sent = cut(sent, name)
		now = append(now, is...)
		if len(was)+len(is) > 0 {
			changes = append(changes, Changed[T]{name, first(was), first(is)})
		}
	}
	return append(now, held...), changes
}

// cut splits the entries of a name from the head of an ordered list.
func cut[T entry](list []T, name string) (named, rest []T) {
	n := 0
	for n < len(list) && list[n].GetName() == name {
		n++
	}
	return list[:n], list[n:]
}

func first[T any](list []T) (e T) {
	if len(list) > 0 {
		e = list[0]
	}
	return e
}
