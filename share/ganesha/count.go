package ganesha

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// NotKnown is a number of records that is not known.
const NotKnown = -1

// revoked begins the name of what Ganesha keeps within a record: a file handle that it took back from the client.
const revoked = "\x01"

// Count is how many clients the next server must wait for: the records in force. The server says how many it has read (clientsRead). Fewer means
// that some clients have lost their state, also if the server could not read any: then it waits for none, and its grace period ends at once.
//
//	in the directory of the records                counts
//	a directory, or directories in directories     as one client for each innermost one, whatever its name is
//	a directory whose name is too short            not: Ganesha did not finish the record of a client whose name is in pieces, or began to
//	                                               remove it. That client had no answer, or has ended
//	a file with the name of a record               as one client
//	another file, a revoked file handle            not
//
// An error means that the records cannot be read. No server may start then, because it would wait for no client.
func Count(recovery string) (int, error) {
	dir, entries, err := recordsInForce(recovery)
	if err != nil {
		return NotKnown, err
	}
	return countIn(dir, "", entries)
}

// countIn counts in a directory within a record whose name begins with prefix, or in that of all records.
func countIn(dir, prefix string, entries []os.DirEntry) (clients int, err error) {
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), revoked) {
			continue
		}
		name := prefix + e.Name()
		if e.IsDir() {
			path := filepath.Join(dir, e.Name())
			pieces, err := os.ReadDir(path)
			if err != nil {
				return NotKnown, fmt.Errorf("reading the record of a client: %w", err)
			}
			inner, err := countIn(path, name, pieces)
			if err != nil {
				return NotKnown, err
			}
			if inner > 0 {
				clients += inner
				continue
			}
		}
		if missing, isRecord := missingOf(name); e.IsDir() && missing <= 0 || isRecord && missing == 0 {
			clients++
		}
	}
	return clients, nil
}

// missingOf is how many bytes the name of a record lacks: ADDRESS-(LENGTH:NAME). isRecord: it has that form.
func missingOf(record string) (missing int, isRecord bool) {
	m := recordOfClient.FindStringSubmatch(record)
	if m == nil {
		return 0, false
	}
	length, name, _ := strings.Cut(strings.TrimPrefix(m[2], "("), ":")
	n, err := strconv.Atoi(length)
	if err != nil {
		return 0, false
	}
	return n + len(")") - len(name), true
}

// waitsFor is in the line by which Ganesha says how many clients it waits for (seen with 4.3 and 9.14). The first one comes right after it has
// read the records, and no text of a client is in it.
var waitsFor = regexp.MustCompile(`^[^\]]*\[[^\]]*\] nfs_try_lift_grace :[A-Z0-9 _]+ :EVENT :check grace:reclaim complete\(\d+\) clid count\((\d+)\)`)

// clientsRead is how many records the server has read, if a line says that. One that has read none says nothing about clients: its grace period
// ends at once.
func clientsRead(line []byte) (clients int, ok bool) {
	if !bytes.Contains(line, []byte("clid count(")) && !bytes.Contains(line, []byte(graceOver)) {
		return 0, false
	}
	if m := origin.FindSubmatch(line); m != nil && string(m[1]) == endsGrace {
		return 0, bytes.Contains(line[len(m[0]):], []byte(graceOver))
	}
	m := waitsFor.FindSubmatch(line)
	if m == nil {
		return 0, false
	}
	n, err := strconv.Atoi(string(m[1]))
	return n, err == nil
}
