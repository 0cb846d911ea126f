package membership

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
	// hold back new writes to them until every member has answered.
	OpClearIntents uint16 = 4
)

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
}

// Regions is a set of regions of RegionBytes each, by index, sorted.
type Regions struct {
	Indexes []int64 `json:"indexes"`
}
