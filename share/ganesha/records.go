package ganesha

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// LostRecords says why the records of the last server's clients are missing from a recovery directory; "": they exist,
// or this is not known. It must be called before DropForeign, and before Ganesha starts. made: the recovery directory
// was missing.
//
//	made    v4recov                    node0               meaning
//	yes                                                    lost: every share manager creates it before it serves
//	no      missing, or no directory                       lost: every Ganesha creates it before it answers
//	no      exists                     missing             not lost: no grace period has ended: no file was opened
//	no      exists                     leads nowhere       lost
//	no      exists                     leads to records    not lost
//	no      cannot be read                                 not known
//
// It does not detect that records of single clients are missing: Ganesha removes the record of a client that
// unregisters.
func LostRecords(recovery string, made bool) string {
	if made {
		return fmt.Sprintf("directory %s was not on the volume", RecoveryName)
	}
	records := filepath.Join(recovery, RecordsName)
	if isNoDirectory(records) {
		return fmt.Sprintf("directory %s/%s was not on the volume", RecoveryName, RecordsName)
	}
	target, err := os.Readlink(filepath.Join(records, linkName))
	switch {
	case errors.Is(err, unix.EINVAL), err == nil && !recordsLink.MatchString(target):
		return fmt.Sprintf("%s/%s/%s was not the link that the NFS server creates", RecoveryName, RecordsName, linkName)
	case err == nil && isNoDirectory(filepath.Join(records, target)):
		return fmt.Sprintf("directory %s/%s/%s was not on the volume", RecoveryName, RecordsName, target)
	}
	return ""
}

// isNoDirectory reports whether a path is certainly not a directory. A link to a directory is not a directory either.
func isNoDirectory(path string) bool {
	info, err := os.Lstat(path)
	return errors.Is(err, os.ErrNotExist) || err == nil && !info.IsDir()
}

// NewIncident describes the loss of the last server's records. It is not known here whether that server had clients.
func NewIncident(reason, message string) types.ShareRecovery {
	return types.ShareRecovery{Incident: uuid.NewString(), Reason: reason, Message: message, FoundAt: time.Now()}
}
