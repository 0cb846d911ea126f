package membership

import (
	"encoding/json"
	"fmt"
	"math"
	"math/bits"
)

// The private NBD command by which an engine speaks to a replica of other things
// than bytes. Payloads are JSON; unknown keys are ignored. A replica answers only
// the connection that holds its gate.
const (
	// OpState asks what the replica recorded. Request empty, reply State.
	OpState uint16 = 1
	// OpRecordEpoch makes an Epoch durable on the replica. Request Epoch, reply empty.
	OpRecordEpoch uint16 = 2
	// OpIntents asks for the regions marked as possibly unequal. Request empty, reply Regions.
	OpIntents uint16 = 3
	// OpClearIntents unmarks regions. Request Regions, reply empty. The engine must have
	// completed a flush on all members after the last write to each region, and must
	// hold back new writes to them until every member has answered. On a replica that is
	// being rebuilt the regions must be equal to the members', and flushed there.
	OpClearIntents uint16 = 4
	// OpBeginRebuild marks the replica durably as being rebuilt, before the first byte of
	// the copy. Request and reply empty. The mark goes when an epoch that lists the replica
	// is stored (OpRecordEpoch), in the same write of its metadata. Idempotent.
	OpBeginRebuild uint16 = 5
	// OpChanged asks a member which regions may differ from what another replica had when it was left out. Request Away,
	// reply Regions; EINVAL if the member does not know. A replica of a release without it answers ENOTSUP.
	OpChanged uint16 = 6
	// OpLackAll tells a replica that is being rebuilt that it may differ from the members everywhere, as of an epoch: it marks every
	// region of the volume, and then has the epoch for its base. Request LackAll, reply empty. It must receive every change by then. Where the reply is
	// an error, its base may be as before, or it has none. A release without it answers ENOTSUP.
	OpLackAll uint16 = 7
	// OpAway has a member record which marks it clears, from now on, for a replica that is being rebuilt and answered OpLackAll with
	// the same epoch; that of the member. Request Away, reply empty; EINVAL if it cannot. A release without it answers ENOTSUP.
	OpAway uint16 = 8
	// OpInForce asks a member whether the generation of this connection is in force there. Request InForce, reply empty; an error is no
	// confirmation. The replica answers without its disk, and remembers in memory when it was asked (State.LastAsked). A release without it
	// answers ENOTSUP.
	OpInForce uint16 = 9
)

// InForce is the request of OpInForce.
type InForce struct {
	// Limited says that the caller stops by itself to act for this generation, a fixed time after the question, unless all members confirm it.
	// A question without it makes the replica forget the questions of this generation before: their age no longer proves anything.
	Limited bool `json:"limited"`
}

// LastAsked says when the engine of an earlier generation last asked a replica OpInForce with InForce.Limited.
type LastAsked struct {
	Generation int64 `json:"generation"`
	// AgoMillis is measured by the replica's clock, which runs while the machine sleeps.
	AgoMillis int64 `json:"agoMillis"`
}

// Away names a replica that is no member, and its base: the last epoch that it was a member of, or the one of OpLackAll.
type Away struct {
	Replica string `json:"replica"`
	Epoch   Epoch  `json:"epoch"`
}

// LackAll is the request of OpLackAll. A replica may be larger than its volume, when it has grown and another one has not; what lies beyond
// is nobody's, and no engine would clear a mark there. SizeBytes is the volume's; 0: it is as large as the replica.
type LackAll struct {
	Epoch
	SizeBytes int64 `json:"sizeBytes,omitempty"`
}

// State is what a replica knows of itself.
type State struct {
	UID        string `json:"uid"`
	SizeBytes  int64  `json:"sizeBytes"`
	Generation int64  `json:"generation"`
	Epoch      Epoch  `json:"epoch"`
	// RegionBytes is the size of one region of the intent map; the same in all replicas of a size.
	RegionBytes int64 `json:"regionBytes"`
	// BootID is the machine's when the replica was last closed cleanly; empty after an unclean stop.
	BootID string `json:"bootID"`
	// Clean is true when the replica was closed cleanly before this session.
	Clean bool `json:"clean"`
	// CacheKept is true when nothing that was written before this session can have been lost, synced or not: the replica
	// was closed cleanly, or has no mark, or its machine has not been restarted and its disk has neither failed nor gone
	// away since. Among equals such a replica is the better source.
	CacheKept bool `json:"cacheKept"`
	// WritesLost is true when what was written before this session may be missing because of something that the replica knows
	// of: its machine was restarted, or its disk failed. CacheKept is false then. If both are false the replica does not know:
	// it has no boot id, or is of a release that does not send WritesLost.
	WritesLost bool `json:"writesLost,omitempty"`
	// ReadsDisk is true when reads return nothing that the replica's disk may lack because of a failure before this session. Releases
	// that do not send it may show what only the kernel's cache has.
	ReadsDisk bool `json:"readsDisk,omitempty"`
	// Rebuilding is true from OpBeginRebuild until an epoch that lists the replica is stored: its content is worth nothing, unless
	// the API object's epoch lists it.
	Rebuilding bool `json:"rebuilding"`
	// Base is the last epoch that the replica was a member of, or the one of OpLackAll. Where its content differs from a member's it has the region marked, or the
	// region was changed since that epoch. Zero when that is not known.
	Base Epoch `json:"base,omitzero"`
	// LastAsked is of the last generation before this session's that asked. Absent when the replica does not know: no generation asked, the
	// replica's process was started since, or it is of a release without OpInForce.
	LastAsked *LastAsked `json:"lastAsked,omitempty"`
}

// Regions is a set of regions of RegionBytes each, by index, sorted. On the wire it is a bitmap, so that its length is bounded by
// that of the intent map, however many regions are marked: first is the index of the lowest bit of the first byte.
type Regions struct {
	Indexes []int64
}

type wireRegions struct {
	First int64  `json:"first"`
	Bits  []byte `json:"bits"`
}

// MarshalJSON implements json.Marshaler. Indexes must be sorted and not negative.
func (r Regions) MarshalJSON() ([]byte, error) {
	var w wireRegions
	if n := len(r.Indexes); n > 0 {
		w.First = r.Indexes[0] &^ 7
		last := r.Indexes[n-1]
		if w.First < 0 || last < w.First || last-w.First >= mostRegions {
			return nil, fmt.Errorf("regions from %d to %d", r.Indexes[0], last)
		}
		w.Bits = make([]byte, (last-w.First)/8+1)
	}
	for _, i := range r.Indexes {
		bit := i - w.First
		if bit < 0 || bit >= int64(len(w.Bits))*8 {
			return nil, fmt.Errorf("region %d is out of order", i)
		}
		w.Bits[bit/8] |= 1 << (bit % 8)
	}
	return json.Marshal(w)
}

// UnmarshalJSON implements json.Unmarshaler.
func (r *Regions) UnmarshalJSON(b []byte) error {
	var w wireRegions
	if err := json.Unmarshal(b, &w); err != nil {
		return fmt.Errorf("decode regions: %w", err)
	}
	if w.First < 0 || w.First > math.MaxInt64-mostRegions || len(w.Bits) > mostRegions/8 {
		return fmt.Errorf("decode regions: %d bytes from region %d", len(w.Bits), w.First)
	}
	r.Indexes = nil
	for i, b := range w.Bits {
		for ; b != 0; b &= b - 1 {
			r.Indexes = append(r.Indexes, w.First+int64(i)*8+int64(bits.TrailingZeros8(b)))
		}
	}
	return nil
}
