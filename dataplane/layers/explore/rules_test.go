package explore

import "github.com/longhorn-lep/longhorn-manager/dataplane/layers"

// rules are the decisions that the transitions of the volume's model take. protocol calls package layers. In a mutant
// one of them is changed.
type rules struct {
	planStart    func(l layers.Line, members []layers.Chain) (layers.Start, error)
	follow       func(l layers.Line, c layers.Chain) layers.Followed
	readyAllowed func(atSwitch, listed, serving, sealed []string) bool
	mayJoin      func(l layers.Line, p layers.Point, b layers.Busy) bool
	revert       func(l layers.Line, to layers.Point) (layers.Line, error)
	base         func(l layers.Line, source, target layers.Chain) layers.Point
	onDiscard    func(headHas, below bool) layers.Entry

	// The order of steps, which no function decides; false in the protocol.
	strict           bool // a start is refused when a member shows a border that the line does not have
	flushesTopOnly   bool // a flush syncs only the top file
	revertsMembers   bool // members drop layers before the object records the revert
	movesBeforeJoin  bool // a piece is moved across a border that the list still shows
	forgetsOwn       bool // a rebuild does not copy what the target has above the base
	layersNotViews   bool // a rebuild copies what the source's layer has, and removes nothing else
	refusesInRebuild bool // a rebuild and a snapshot exclude each other
	doesNotEqualize  bool // a start does not make marked blocks equal
	standsOnBorder   bool // the head of a rebuilt replica stands on the border below it, also after a revert
}

func protocol() rules {
	return rules{
		planStart: func(l layers.Line, members []layers.Chain) (layers.Start, error) {
			return layers.PlanStart(l, members, nil)
		},
		follow: layers.Line.Follow,
		readyAllowed: func(atSwitch, listed, _, sealed []string) bool {
			return layers.ReadyAllowed(atSwitch, listed, sealed)
		},
		mayJoin:   layers.Line.MayJoin,
		revert:    func(l layers.Line, to layers.Point) (layers.Line, error) { return l.Revert(to, later(l, to)...) },
		base:      layers.Line.Base,
		onDiscard: layers.OnDiscard,
	}
}

// later are the snapshots after a point: the caller of a revert names them.
func later(l layers.Line, to layers.Point) (out []layers.Number) {
	for _, m := range l.Points {
		if m.Number > to.Number && m.State == layers.Ready {
			out = append(out, m.Number)
		}
	}
	return out
}

// bounds limit how often each event may happen on the way to a state.
type bounds struct {
	members, blocks, size uint8
	writes, trims         uint8
	snapshots, deletes    uint8
	ends                  uint8 // attempts that end while their engine runs
	reverts               uint8
	crashes               uint8 // of the engine
	losses                uint8 // of power, of one member
	absences              uint8
	rebuilds, cuts        uint8 // cuts: a rebuild ends in the middle of a stage
	backups               uint8 // of the object; a restore follows
	heads                 uint8 // local heads
	holds                 uint8
	pieces                bool // merges move one block at a time
	partial               bool // an engine dies in the middle of a write
	grows                 bool
	backupInAttempt       bool // the object may be backed up while a snapshot is intended
	silent                bool // the caller of a revert names no later snapshot
	detached              bool // a revert is also recorded while no engine runs
}
