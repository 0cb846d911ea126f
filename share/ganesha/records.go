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

// LostRecords says why the records of the last server's clients are not beneath a recovery directory; "": they are, or nothing is
// known against it. It must be called before DropForeign, and before Ganesha starts. made: the recovery directory was missing.
//
//	made    v4recov                    node0               what it means
//	yes                                                    lost: every share manager makes the directory before it serves
//	no      missing, or no directory                       lost: every Ganesha makes it before it answers
//	no      there                      missing             kept: no grace period has ended, so no client has opened anything
//	no      there                      leads nowhere       lost
//	no      there                      leads to records    kept
//	no      cannot be read                                 not known
//
// Records of single clients that are missing are not seen: Ganesha removes that of a client that ends.
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
		return fmt.Sprintf("%s/%s/%s was not the link that the NFS server makes", RecoveryName, RecordsName, linkName)
	case err == nil && isNoDirectory(filepath.Join(records, target)):
		return fmt.Sprintf("directory %s/%s/%s was not on the volume", RecoveryName, RecordsName, target)
	}
	return ""
}

// isNoDirectory tells whether there is certainly no directory at a path, a link to one included.
func isNoDirectory(path string) bool {
	info, err := os.Lstat(path)
	return errors.Is(err, os.ErrNotExist) || err == nil && !info.IsDir()
}

// NewIncident names the loss of the last server's records. Whether that server had clients is not known here.
func NewIncident(reason, message string) types.ShareRecovery {
	return types.ShareRecovery{Incident: uuid.NewString(), Reason: reason, Message: message, FoundAt: time.Now()}
}
