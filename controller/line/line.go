package line

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// NonceLimit is the bound of nonces: JSON readers round larger numbers.
const NonceLimit = int64(1) << 53

var states = map[longhorn.PointState]layers.State{
	longhorn.PointStateIntended: layers.Intended,
	longhorn.PointStateReady:    layers.Ready,
	longhorn.PointStateDeleted:  layers.Deleted,
}

// Rules returns the line of an object as the rules know it. A nil line is that of a volume that never had a snapshot.
func Rules(l *longhorn.Line) layers.Line {
	if l == nil {
		return layers.Line{}
	}
	r := layers.Line{Counter: layers.Number(l.Counter)}
	for _, p := range l.Points {
		r.Points = append(r.Points, layers.Mark{
			Point: Point(p), State: states[p.State], Holds: slices.Clone(p.Holds), Group: p.Group,
		})
	}
	if i := l.Reverted; i != nil {
		r.Reverted = []layers.Interval{{To: layers.Number(i.To), By: layers.Number(i.By)}}
	}
	for _, b := range l.Bases {
		r.Bases = append(r.Bases, layers.Base{Point: pointOf(b.Number, b.Nonce), By: b.By})
	}
	return r
}

// Object returns a line of the rules as the object records it. Points that was also has keep their names, times and
// sizes. The result is nil for the line of a volume that never had a snapshot.
func Object(r layers.Line, was *longhorn.Line) *longhorn.Line {
	if r.Counter == 0 && len(r.Points) == 0 {
		return nil
	}
	l := &longhorn.Line{Counter: int64(r.Counter)}
	for _, m := range r.Points {
		p := longhorn.LinePoint{Number: int64(m.Number), Nonce: int64(m.Nonce)}
		if i := index(was, m.Point); i >= 0 {
			p = *was.Points[i].DeepCopy()
		}
		p.State, p.Holds, p.Group = stateOf(m.State), slices.Clone(m.Holds), m.Group
		l.Points = append(l.Points, p)
	}
	if len(r.Reverted) > 0 {
		i := r.Reverted[len(r.Reverted)-1]
		l.Reverted = &longhorn.LineInterval{To: int64(i.To), By: int64(i.By)}
	}
	for _, b := range r.Bases {
		l.Bases = append(l.Bases, longhorn.LineBase{Number: int64(b.Number), Nonce: int64(b.Nonce), By: b.By})
	}
	return l
}

// Started returns the line with which an engine has started. Points that the object did not know, because it was
// restored from a backup, get a name, and the present size and time: the true ones are unknown.
func Started(r layers.Line, was *longhorn.Line, volume string, sizeBytes int64, now time.Time) *longhorn.Line {
	l := Object(r, was)
	if l == nil {
		return nil
	}
	for i := range l.Points {
		p := &l.Points[i]
		if index(was, Point(*p)) < 0 {
			p.Name, p.CreatedAt, p.SizeBytes = AdoptedName(volume, *p), types.Timestamp(now), sizeBytes
		}
	}
	return l
}

// AdoptedName is the name of a snapshot that was found on the replicas alone.
func AdoptedName(volume string, p longhorn.LinePoint) string {
	return fmt.Sprintf("%s-%d-%s", volume, p.Number, strconv.FormatInt(p.Nonce, 36))
}

// Point returns the point of an entry.
func Point(p longhorn.LinePoint) layers.Point { return pointOf(p.Number, p.Nonce) }

func pointOf(number, nonce int64) layers.Point {
	return layers.Point{Number: layers.Number(number), Nonce: uint64(nonce)}
}

func stateOf(s layers.State) longhorn.PointState {
	for object, rule := range states {
		if rule == s {
			return object
		}
	}
	return ""
}

// Find returns the entry of a point; nil: the line does not have it. The entry must not be modified.
func Find(l *longhorn.Line, p layers.Point) *longhorn.LinePoint {
	if i := index(l, p); i >= 0 {
		return &l.Points[i]
	}
	return nil
}

func index(l *longhorn.Line, p layers.Point) int {
	if l == nil {
		return -1
	}
	return slices.IndexFunc(l.Points, func(e longhorn.LinePoint) bool { return Point(e) == p })
}

// Named returns the point of a snapshot; nil if the line has no such point. A deleted point has no
// snapshot any longer, so another point may have its name. The entry must not be modified.
func Named(l *longhorn.Line, snapshot string) *longhorn.LinePoint {
	if l == nil || snapshot == "" {
		return nil
	}
	for i := range l.Points {
		if p := &l.Points[i]; p.Name == snapshot && p.State != longhorn.PointStateDeleted {
			return p
		}
	}
	return nil
}

// Intended returns the point of the attempt under way; nil without an attempt. The entry must not be modified.
func Intended(l *longhorn.Line) *longhorn.LinePoint {
	if l == nil {
		return nil
	}
	for i := range l.Points {
		if l.Points[i].State == longhorn.PointStateIntended {
			return &l.Points[i]
		}
	}
	return nil
}

// Intend adds a point for a snapshot to the line. It changes nothing else, and fails with layers.ErrBusy while another
// attempt is under way.
func Intend(l *longhorn.Line, snapshot string, nonce int64) (*longhorn.Line, error) {
	r, p, err := Rules(l).Intend(uint64(nonce), "")
	if err != nil {
		return nil, err
	}
	next := Object(r, l)
	next.Points[index(next, p)].Name = snapshot
	return next, nil
}

// Change applies a rule that changes the state of one point, such as layers.Line.GiveUp.
func Change(l *longhorn.Line, p layers.Point, rule func(layers.Line, layers.Point) (layers.Line, error)) (*longhorn.Line, error) {
	r, err := rule(Rules(l), p)
	if err != nil {
		return nil, err
	}
	return Object(r, l), nil
}

// Ready records that every member has stored a point, with the time and the size of its content.
func Ready(l *longhorn.Line, p layers.Point, at time.Time, sizeBytes int64) (*longhorn.Line, error) {
	next, err := Change(l, p, layers.Line.Ready)
	if err != nil {
		return nil, err
	}
	e := &next.Points[index(next, p)]
	e.CreatedAt, e.SizeBytes = types.Timestamp(at), sizeBytes
	return next, nil
}
