package ganesha

import "regexp"

// Names on the volume. The recovery directory is in the root of the volume, so that a successor on another node finds
// it. In Ganesha's configuration it is the RecoveryRoot.
//
//	.longhorn-share/                        RecoveryName
//	├── v4recov/                            RecordsName
//	│   ├── node0 -> node0.XXXXXX           the records in force
//	│   └── node0.XXXXXX/
//	│       └── ADDRESS-(LENGTH:NAME)/      the record of one client; a long name has nested directories
//	├── ballast/                            space for records
//	├── cover/                              CoverName
//	├── epoch                               EpochName
//	├── lost                                LostName
//	├── owner -> UID                        OwnerName
//	└── written                             WrittenName
const (
	// RecoveryName is the directory with the data about clients that the server needs after a restart.
	RecoveryName = ".longhorn-share"
	// RecordsName is the directory of the records. In it, Ganesha maintains the link "node0" to the records in force,
	// the directory node0.XXXXXX next to the link.
	RecordsName = "v4recov"
	// CoverName is the directory that clients see in place of the recovery directory. Its content belongs to them.
	CoverName = "cover"
	// WrittenName is the file that the share manager writes to check whether the volume accepts writes.
	WrittenName = "written"

	// EpochName is the file with the epoch of the last server, in digits.
	EpochName = "epoch"
	// LostName is the file with the lowest generation of an engine that a list of lost clients may still be about, in
	// digits.
	LostName = "lost"
	// OwnerName is a link (Claim). Its target is the UID of the Volume to which the records belong. It leads nowhere.
	OwnerName = "owner"

	// linkName is Ganesha's link to the directory of the records in force. Ganesha creates it at the end of its first
	// grace period, and replaces it by rename at the end of each later one.
	linkName = "node0"
)

var (
	recordsLink = regexp.MustCompile(`^node0\.[A-Za-z0-9]{6}$`)
	// recordOfClient matches the name that Ganesha gives to the record of a client: an address, and the client's name
	// with its length.
	recordOfClient = regexp.MustCompile(`^(.+?)-(\(\d+:.*)$`)
)
