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
	// ballastName is a directory in the recovery directory, and ballastCount how many directories are in it.
	ballastName  = "ballast"
	ballastCount = 32
	// ballastRound is how often missing ones are made again.
	ballastRound = time.Minute
	// ballastBytes and ballastInodes are what must be free for the ballast to be kept, and for it not to be given up.
	ballastBytes, ballastInodes = 8 << 20, 8 * ballastCount
)

// Ballast are empty directories that keep room for the server's records: a server that starts on a full file system can record no client. They are
// removed just before a server starts, if nothing else is free, and made again while there is room. An earlier release leaves them alone.
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

// hasRoom tells whether the file system has room to spare. One that counts no inodes has enough of them.
func (b Ballast) hasRoom() (bool, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(b.Recovery, &st); err != nil {
		return false, err
	}
	return st.Bavail*uint64(st.Bsize) >= ballastBytes && (st.Files == 0 || st.Ffree >= ballastInodes), nil
}

// GiveUp makes room for the records of the server that starts next, where there is too little.
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
	b.Log.WithField("directories", given).Warn("The volume's file system is full: room that was kept for the records of clients is given up")
}

// Keep makes the directories that are missing, if there is room.
func (b Ballast) Keep() {
	if enough, err := b.hasRoom(); !enough || err != nil {
		return
	}
	if err := os.Mkdir(filepath.Join(b.Recovery, ballastName), 0o700); err != nil && !os.IsExist(err) {
		return
	}
	for _, name := range b.names() {
		if err := unix.Mkdir(name, 0o700); err != nil && err != unix.EEXIST {
			return // what is there serves; the rest is tried again
		}
	}
}

// Run keeps the directories until ctx ends. It waits for the volume.
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
