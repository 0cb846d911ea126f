package ganesha

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"
)

const (
	// reserveName is a directory in the recovery directory, and reserveCount is how many directories it contains.
	reserveName  = "ballast"
	reserveCount = 32
	// refillInterval is how often missing directories are created again.
	refillInterval = time.Minute
	// minFreeBytes and minFreeInodes must be free for Refill to create the directories. While they are free, Release
	// does not remove them.
	minFreeBytes, minFreeInodes = 8 << 20, 8 * reserveCount
)

// Reserve is a set of empty directories that reserve space for the server's records: a server that starts on a full
// file system cannot record clients. They are removed just before a server starts, if there is no other free space, and
// created again while there is space. An earlier release does not change them.
type Reserve struct {
	Recovery string // directory
	Log      *logrus.Entry
}

func (b Reserve) names() []string {
	var names []string
	for i := range reserveCount {
		names = append(names, filepath.Join(b.Recovery, reserveName, fmt.Sprintf("%02d", i)))
	}
	return names
}

// hasSpace reports whether the file system has spare space. A file system that does not count inodes has enough of
// them.
func (b Reserve) hasSpace() (bool, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(b.Recovery, &st); err != nil {
		return false, err
	}
	return st.Bavail*uint64(st.Bsize) >= minFreeBytes && (st.Files == 0 || st.Ffree >= minFreeInodes), nil
}

// Release removes the directories if there is too little space for the records of the server that starts next.
func (b Reserve) Release() {
	if enough, err := b.hasSpace(); enough || err != nil {
		return
	}
	released := 0
	for _, name := range b.names() {
		if unix.Rmdir(name) == nil {
			released++
		}
	}
	b.Log.WithField("directories", released).Warn("The volume's file system is full. The space reserved for the records of clients was released for the next server")
}

// Refill creates the directories that are missing, if there is space.
func (b Reserve) Refill() {
	if enough, err := b.hasSpace(); !enough || err != nil {
		return
	}
	if err := os.Mkdir(filepath.Join(b.Recovery, reserveName), 0o700); err != nil && !os.IsExist(err) {
		return
	}
	for _, name := range b.names() {
		if err := unix.Mkdir(name, 0o700); err != nil && err != unix.EEXIST {
			return // the existing ones are useful; the rest is tried again
		}
	}
}

// Run maintains the directories until ctx is done. It waits for the volume.
func (b Reserve) Run(ctx context.Context) {
	ticker := time.NewTicker(refillInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			b.Refill()
		}
	}
}
