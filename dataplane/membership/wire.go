package membership

import (
	"encoding/json"
	"fmt"
	"math"
	"math/bits"
)

// The private NBD command for all messages between an engine and a replica except data. Payloads are JSON; unknown keys
// are ignored. A replica answers only the connection that holds its gate.
const (
	// OpState requests the replica's recorded state. Request empty, reply State.
	OpState uint16 = 1
	// OpRecordEpoch makes an Epoch durable on the replica. Request Epoch, reply empty.
	OpRecordEpoch uint16 = 2
	// OpIntents requests the regions that are marked as possibly unequal. Request empty, reply Regions.
	OpIntents uint16 = 3
	// OpClearIntents clears the marks of regions. Request Regions, reply empty. Before, the engine must have completed
	// a flush on all members after the last write to each region. It must delay new writes to these regions until every
	// member has answered. On a replica under rebuild the regions must be equal to the members' regions, and flushed
	// there.
	OpClearIntents uint16 = 4
	// OpBeginRebuild marks the replica durably as being rebuilt, before the first byte of the copy. Request and reply
	// empty. The mark is removed when an epoch that lists the replica is stored (OpRecordEpoch), in the same write of
	// its metadata. Idempotent.
	OpBeginRebuild uint16 = 5
	// OpChanged asks a member which regions have changed since another replica was left out: they may differ there.
	// Request Away, reply Regions; EINVAL if the member does not know. A replica of a release without it answers
	// ENOTSUP.
	OpChanged uint16 = 6
	// OpLackAll informs a replica under rebuild that it may differ from the members everywhere, as of an epoch. The
	// replica marks every region of the volume, and then uses the epoch as its base. Request LackAll, reply empty.
	// Before the request, the replica must already receive every change. If the reply is an error, the replica has its
	// earlier base, or none. A release without it answers ENOTSUP.
	OpLackAll uint16 = 7
	// OpAway makes a member record, from now on, which marks it clears. The record is for a replica under rebuild that
	// answered OpLackAll with the same epoch; the member must have that epoch. Request Away, reply empty; EINVAL if the
	// member cannot. A release without it answers ENOTSUP.
	OpAway uint16 = 8
	// OpInForce asks a member whether the generation of this connection is in force there. Request InForce, reply
	// empty; an error is no confirmation. The replica answers without its disk, and remembers the time of the question
	// in memory (State.LastAsked). A release without it answers ENOTSUP.
	OpInForce uint16 = 9
)

// InForce is the request of OpInForce.
type InForce struct {
	// Limited says that the caller stops acting for this generation a fixed time after the question, unless all members
	// confirm the question. After a question without Limited the replica forgets the earlier questions of this
	// generation, because their age no longer proves anything.
	Limited bool `json:"limited"`
}

// LastAsked is the time at which the engine of an earlier generation last sent OpInForce with InForce.Limited to a
// replica.
type LastAsked struct {
	Generation int64 `json:"generation"`
	// AgoMillis is measured by the replica's clock, which also runs while the machine sleeps.
	AgoMillis int64 `json:"agoMillis"`
}

// Away names a replica that is not a member, and its base: the last epoch that it was a member of, or the epoch of
// OpLackAll.
type Away struct {
	Replica string `json:"replica"`
	Epoch   Epoch  `json:"epoch"`
}

// LackAll is the request of OpLackAll. A replica may be larger than its volume, if it has grown and another replica has
// not. No volume uses the bytes beyond the volume's size, and no engine would clear a mark there. SizeBytes is the size
// of the volume; 0 means that it equals the size of the replica.
type LackAll struct {
	Epoch
	SizeBytes int64 `json:"sizeBytes,omitempty"`
}

// State is a replica's knowledge about itself.
type State struct {
	UID        string `json:"uid"`
	SizeBytes  int64  `json:"sizeBytes"`
	Generation int64  `json:"generation"`
	Epoch      Epoch  `json:"epoch"`
	// RegionBytes is the size of one region of the intent map. All replicas of a size have the same region size.
	RegionBytes int64 `json:"regionBytes"`
	// BootID is the boot id of the machine at the time when the replica was last closed cleanly; empty after an unclean
	// stop.
	BootID string `json:"bootID"`
	// Clean is true if the replica was closed cleanly before this session.
	Clean bool `json:"clean"`
	// CacheKept is true if no write before this session can have been lost, synced or not. This holds in three cases:
	// the replica was closed cleanly; it has no mark; or its machine has not been restarted since, and its disk has
	// neither failed nor gone away since. Among equal replicas such a replica is the better source.
	CacheKept bool `json:"cacheKept"`
	// WritesLost is true if writes before this session may be missing because of an event that the replica knows: its
	// machine was restarted, or its disk failed. Then CacheKept is false. If both are false, the replica does not know:
	// it has no boot id, or is of a release that does not send WritesLost.
	WritesLost bool `json:"writesLost,omitempty"`
	// ReadsDisk is true if reads return no data that the replica's disk may lack because of a failure before this
	// session. Replicas of releases that do not send it may return data that only the kernel's cache has.
	ReadsDisk bool `json:"readsDisk,omitempty"`
	// Rebuilding is true from OpBeginRebuild until an epoch that lists the replica is stored. During that time its
	// content is worthless, unless the API object's epoch lists it.
	Rebuilding bool `json:"rebuilding"`
	// Base is the last epoch that the replica was a member of, or the epoch of OpLackAll. If the replica's content
	// differs from a member's content in a region, then the replica has marked the region, or the region was changed
	// since that epoch. Zero if the base is unknown.
	Base Epoch `json:"base,omitzero"`
	// LastAsked describes the last earlier generation that asked. It is absent if the replica does not know: no
	// generation asked, the replica's process was started since, or the replica is of a release without OpInForce.
	LastAsked *LastAsked `json:"lastAsked,omitempty"`
}

// Regions is a set of regions of RegionBytes each, by index, sorted. On the wire it is a bitmap. So its length is at
// most that of the intent map, however many regions are marked. first is the index of the lowest bit of the first byte.
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
			return nil, fmt.Errorf("encode the regions %d to %d: out of range", r.Indexes[0], last)
		}
		w.Bits = make([]byte, (last-w.First)/8+1)
	}
	for _, i := range r.Indexes {
		bit := i - w.First
		if bit < 0 || bit >= int64(len(w.Bits))*8 {
			return nil, fmt.Errorf("encode the regions: region %d is out of order", i)
		}
		w.Bits[bit/8] |= 1 << (bit % 8)
	}
	return json.Marshal(w)
}

// UnmarshalJSON implements json.Unmarshaler.
func (r *Regions) UnmarshalJSON(b []byte) error {
	var w wireRegions
	if err := json.Unmarshal(b, &w); err != nil {
		return fmt.Errorf("decode the regions: %w", err)
	}
	if w.First < 0 || w.First > math.MaxInt64-mostRegions || len(w.Bits) > mostRegions/8 {
		return fmt.Errorf("decode the regions: %d bytes from region %d are out of range", len(w.Bits), w.First)
	}
	r.Indexes = nil
	for i, b := range w.Bits {
		for ; b != 0; b &= b - 1 {
			r.Indexes = append(r.Indexes, w.First+int64(i)*8+int64(bits.TrailingZeros8(b)))
		}
	}
	return nil
}
