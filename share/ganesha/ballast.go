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
	// ballastName is a directory in the recovery directory, and ballastCount is how many directories it contains.
	ballastName  = "ballast"
	ballastCount = 32
	// ballastRound is how often missing directories are created again.
	ballastRound = time.Minute
	// ballastBytes and ballastInodes must be free for Keep to create the ballast. While they are free, GiveUp does not
	// remove it.
	ballastBytes, ballastInodes = 8 << 20, 8 * ballastCount
)

// Ballast are empty directories that reserve space for the server's records: a server that starts on a full file system
// cannot record clients. They are removed just before a server starts, if there is no other free space, and created
// again while there is space. An earlier release does not change them.
type Ballast struct {
	Recovery string // directory
	Log      *logrus.Entry
}

func (b Ballast) names() []string {
	var names []string
	for i := range ballastCount {
		names = append(names, filepath.Join(b.Recovery, ballastName, fmt.Sprintf("%02d", i)))
	}
	return names
}

// hasRoom reports whether the file system has spare space. A file system that does not count inodes has enough of them.
func (b Ballast) hasRoom() (bool, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(b.Recovery, &st); err != nil {
		return false, err
	}
	return st.Bavail*uint64(st.Bsize) >= ballastBytes && (st.Files == 0 || st.Ffree >= ballastInodes), nil
}

// GiveUp removes the ballast if there is too little space for the records of the server that starts next.
func (b Ballast) GiveUp() {
	if enough, err := b.hasRoom(); enough || err != nil {
		return
	}
	given := 0
	for _, name := range b.names() {
		if unix.Rmdir(name) == nil {
			given++
		}
	}
	b.Log.WithField("directories", given).Warn("The volume's file system is full. The space reserved for the records of clients was released for the next server")
}

// Keep creates the directories that are missing, if there is space.
func (b Ballast) Keep() {
	if enough, err := b.hasRoom(); !enough || err != nil {
		return
	}
	if err := os.Mkdir(filepath.Join(b.Recovery, ballastName), 0o700); err != nil && !os.IsExist(err) {
		return
	}
	for _, name := range b.names() {
		if err := unix.Mkdir(name, 0o700); err != nil && err != unix.EEXIST {
			return // the existing ones are useful; the rest is tried again
		}
	}
}

// Run maintains the directories until ctx is done. It waits for the volume.
func (b Ballast) Run(ctx context.Context) {
	ticker := time.NewTicker(ballastRound)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			b.Keep()
		}
	}
}
