package replica

import (
	"errors"
	"fmt"

	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
)

// replacesMeta returns what replaces the metadata of a replica, even when the disk is full:
//
//	replica.meta       the metadata in force
//	replica.meta.tmp   the spare
//
// The spare has the name under which the first release wrote the next metadata. That release removes the spare, and
// reads replica.meta as always; this release creates the spare again. If an earlier process did the previous
// replacement, the sync in Open makes it durable. After an error that wraps fsys.ErrUncertain the replica must stop.
func replacesMeta(dir fsys.Dir) fsys.Replacer {
	return fsys.Replacer{Dir: dir, Name: metaName, Temp: metaTempName, SpareBytes: metaBlockBytes, Exists: true}
}

// readMeta reads the metadata in an open directory. Errors wrap syscall.ENOENT, fsys.ErrNotRegular, or an error of
// decodeMeta.
//
// A reader without the lock may have opened a file that becomes the spare and is overwritten during the read. That
// requires two replacements, so the metadata looks torn at most once or twice in a row.
func readMeta(dir fsys.Dir) (m Meta, err error) {
	for range 3 {
		var b []byte
		if b, err = readFile(dir, metaName, maxMetaBytes); err != nil {
			return Meta{}, err
		}
		if m, err = decodeMeta(b); err == nil {
			return m, nil
		}
		err = fmt.Errorf("%s: %w", metaName, err)
		if !errors.Is(err, errTorn) {
			return m, err
		}
	}
	return m, err
}

// readFile reads a whole file, or limit+1 bytes of a file that is longer than limit.
func readFile(dir fsys.Dir, name string, limit int64) ([]byte, error) {
	f, err := dir.OpenFile(name, fsys.ReadOnly)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	b := make([]byte, min(size, limit+1))
	if len(b) == 0 {
		return b, nil
	}
	return b, f.ReadAt(b, 0)
}
