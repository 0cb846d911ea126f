package ganesha

import "regexp"

// Names of what is on the volume. The recovery directory is in the root of the volume, so that a successor on another node finds it; Ganesha is
// told of it as its RecoveryRoot.
//
//	.longhorn-share/                        RecoveryName
//	├── v4recov/                            RecordsName
//	│   ├── node0 -> node0.XXXXXX           the records in force
//	│   └── node0.XXXXXX/
//	│       └── ADDRESS-(LENGTH:NAME)/      the record of one client; a long name is in directories within directories
//	├── ballast/                            room for records
//	├── cover/                              CoverName
//	├── epoch                               EpochName
//	├── lost                                LostName
//	├── owner -> UID                        OwnerName
//	└── written                             WrittenName
const (
	// RecoveryName is the directory that holds what the server must know of its clients after a restart.
	RecoveryName = ".longhorn-share"
	// RecordsName is the directory of the records, in which Ganesha keeps the link "node0" to the ones that hold: node0.XXXXXX beside it.
	RecordsName = "v4recov"
	// CoverName is the directory that clients see in place of the recovery directory. What is in it is theirs.
	CoverName = "cover"
	// WrittenName is the file that the share manager writes to see whether the volume takes writes.
	WrittenName = "written"

	// EpochName is the file with the epoch of the last server, in digits.
	EpochName = "epoch"
	// LostName is the file with the lowest generation of an engine that a list of lost clients may still be about, in digits.
	LostName = "lost"
	// OwnerName is the link whose target is the UID of the Volume whose clients have the records (Claim). It leads nowhere.
	OwnerName = "owner"

	// linkName is Ganesha's link to the directory of the records in force. Ganesha makes it at the end of its first grace period, and
	// replaces it by rename at the end of each later one.
	linkName = "node0"
)

var (
	recordsLink = regexp.MustCompile(`^node0\.[A-Za-z0-9]{6}$`)
	// recordOfClient is how Ganesha names the record of a client: an address, and the client's name with its length.
	recordOfClient = regexp.MustCompile(`^(.+?)-(\(\d+:.*)$`)
)
