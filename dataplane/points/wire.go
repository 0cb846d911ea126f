package points

import "github.com/longhorn-lep/longhorn-manager/dataplane/layers"

// The operations. Their numbers continue the numbers of package membership. All are safe to repeat.
const (
	// OpState requests the layers of a replica. Request empty, reply State.
	OpState uint16 = 10
	// OpFollow makes the replica follow a line, before members are compared. Request Follow, reply Followed. A replica
	// of format 1 follows a line without a revert by doing nothing.
	OpFollow uint16 = 11
	// OpPrepare puts a border and an empty head above the present head, durably. Changes still go below the border. It
	// changes the format version to 2 if necessary. Request Prepare, reply empty. Lack of space is ENOSPC; then
	// nothing has changed, and the replica continues to serve.
	OpPrepare uint16 = 12
	// OpSwitch lets changes go to the head above the border of the last OpPrepare. The engine has no change under way.
	// It does not use the disk. Request layers.Point, reply empty.
	OpSwitch uint16 = 13
	// OpSeal makes everything below a border durable, and then the statement that it is. Request layers.Point, reply
	// empty.
	OpSeal uint16 = 14
	// OpLine tells the replica the line that the object has recorded: the replica merges the layers of the borders
	// that may go, in the background. Request Line, reply empty. It is repeated after each change of the line.
	OpLine uint16 = 15
	// OpReadView reads from the view at a point. Request ReadView, reply the bytes.
	OpReadView uint16 = 16
	// OpDiffers asks which ranges may differ between the views at two points. Request Differs, reply Ranges.
	OpDiffers uint16 = 17
	// OpStartRebuild makes all layers of a target above the base one layer, its head. Request StartRebuild, reply
	// empty. The target is marked as being rebuilt (membership.OpBeginRebuild), and has followed the line.
	OpStartRebuild uint16 = 18
	// OpSealStage ends a stage of a rebuild on its target: everything is made durable, and the head becomes the layer
	// below the border. Request SealStage, reply empty.
	OpSealStage uint16 = 19
	// OpEndRebuild ends the last stage, before the target is listed in an epoch. Request EndRebuild, reply empty.
	OpEndRebuild uint16 = 20
)

// State describes the layers of a replica.
type State struct {
	// Version is the format version: 1 for a replica that never had a snapshot. Then Chain is layers.NewChain.
	Version int          `json:"version"`
	Chain   layers.Chain `json:"chain"`
	// NoRoom is true below the space that the disk keeps free: the replica cannot prepare a snapshot.
	NoRoom bool `json:"noRoom,omitempty"`
}

// Follow is the request of OpFollow.
type Follow struct {
	Line layers.Line `json:"line"`
}

// Followed is the reply to OpFollow.
type Followed struct {
	State
	// Short is true if a revert returned to a point that the replica does not have: it can only be rebuilt.
	Short bool `json:"short,omitempty"`
}

// Prepare is the request of OpPrepare.
type Prepare struct {
	Point layers.Point `json:"point"`
	// Limit is the number of files that the chain may have: at most layers.MostFiles. The point of a
	// rebuild may use layers.AllFiles.
	Limit int `json:"limit"`
}

// Line is the request of OpLine.
type Line struct {
	Line layers.Line `json:"line"`
	// Needed are the borders that a rebuild needs.
	Needed []layers.Point `json:"needed,omitempty"`
}

// ReadView is the request of OpReadView. Length is at most nbd.MaxControl. A zero Point is the volume itself.
type ReadView struct {
	Point  layers.Point `json:"point"`
	Offset int64        `json:"offset"`
	Length int64        `json:"length"`
}

// Differs is the request of OpDiffers. A zero From is the empty volume, so everything that has data differs. A zero To
// is the present content.
type Differs struct {
	From   layers.Point `json:"from"`
	To     layers.Point `json:"to"`
	Offset int64        `json:"offset"` // where the answer starts
}

// Range is a part of the volume, in bytes.
type Range struct {
	Offset int64 `json:"offset"`
	Length int64 `json:"length"`
}

// Ranges is the reply to OpDiffers: perhaps more than differs, never less. They ascend and do not overlap.
type Ranges struct {
	Ranges []Range `json:"ranges"`
	// Next is where the next question must start. The answer covers everything before it. It is the size of the volume
	// when there is nothing more.
	Next int64 `json:"next"`
	// Unknown is true if the replica does not know the changes since From. Then Ranges is empty.
	Unknown bool `json:"unknown,omitempty"`
}

// StartRebuild is the request of OpStartRebuild. A zero Base means that the target keeps none of its points.
type StartRebuild struct {
	Base layers.Point `json:"base"`
}

// SealStage is the request of OpSealStage.
type SealStage struct {
	Line  layers.Line  `json:"line"`
	Point layers.Point `json:"point"`
}

// EndRebuild is the request of OpEndRebuild.
type EndRebuild struct {
	Line layers.Line `json:"line"`
}
