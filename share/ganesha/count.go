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

// NotKnown stands for an unknown number of records.
const NotKnown = -1

// revoked is the prefix of names that Ganesha creates within a record for a file handle that it revoked from the
// client.
const revoked = "\x01"

// Count is how many clients the next server must wait for: the number of records in force. The server logs how many it
// has read (clientsRead). If it has read fewer, some clients have lost their state. This includes a server that could
// read none: it waits for no client, and its grace period ends at once.
//
//	in the directory of the records                counts
//	a directory, or directories in directories     as one client for each innermost one, whatever its name is
//	a directory with too short a name              not: Ganesha did not finish the record of a client with a name in
//	                                               several parts, or started to remove it. That client had no answer,
//	                                               or has unregistered
//	a file with the name of a record               as one client
//	another file, a revoked file handle            not
//
// An error means that the records cannot be read. In that case no server may start, because it would wait for no
// client.
func Count(recovery string) (int, error) {
	dir, entries, err := recordsInForce(recovery)
	if err != nil {
		return NotKnown, err
	}
	return countIn(dir, "", entries)
}

// countIn counts the clients in a directory. The directory is within a record with a name that starts with prefix, or
// it is the directory of all records.
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

// waitsFor matches the line in which Ganesha says how many clients it waits for (seen with 4.3 and 9.14). The first
// such line comes right after Ganesha has read the records, and contains no text of a client.
var waitsFor = regexp.MustCompile(`^[^\]]*\[[^\]]*\] nfs_try_lift_grace :[A-Z0-9 _]+ :EVENT :check grace:reclaim complete\(\d+\) clid count\((\d+)\)`)

// clientsRead is how many records the server has read, if a line says that. A server that has read none logs nothing
// about clients: its grace period ends at once.
func clientsRead(line []byte) (clients int, ok bool) {
	if !bytes.Contains(line, []byte("clid count(")) && !bytes.Contains(line, []byte(graceEndText)) {
		return 0, false
	}
	if m := origin.FindSubmatch(line); m != nil && string(m[1]) == graceEndFunction {
		return 0, bytes.Contains(line[len(m[0]):], []byte(graceEndText))
	}
	m := waitsFor.FindSubmatch(line)
	if m == nil {
		return 0, false
	}
	n, err := strconv.Atoi(string(m[1]))
	return n, err == nil
}
