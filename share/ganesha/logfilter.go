package ganesha

import (
	"bytes"
	"io"
	"regexp"
)

// logFilter parses the server's log. It passes every line that the server itself wrote to onLine, and forwards the
// lines that are worth reading. The server's own lines start with a mark that no client knows (config.go). So if a
// client forges a line, with a line feed in a value, the line does not count as the server's own. Such a remainder of a
// line is treated in the same way as the start of the line.
type logFilter struct {
	mark      []byte
	onLine    func(line []byte) // receives each line with the mark, without it
	lines     chan []byte       // to be forwarded
	rest      []byte
	isSkipped bool   // the last line of the server's own was chatter
	lastCheck []byte // the result of the last check for clients
}

const (
	// maxLine limits how much is stored of a line without an end.
	maxLine = 16 << 10
	// maxUnread is how many lines wait for the log's reader. More are lost: a log must not stop the server.
	maxUnread = 1000
)

// newLogFilter returns a logFilter that forwards lines to a writer until close.
func newLogFilter(to io.Writer, mark string, onLine func([]byte)) *logFilter {
	f := &logFilter{mark: []byte(mark + " "), onLine: onLine, lines: make(chan []byte, maxUnread)}
	go func() {
		for line := range f.lines {
			_, _ = to.Write(line)
		}
	}()
	return f
}

// close stops the forwarding after the received lines are written. Write must not be called after it.
func (f *logFilter) close() { close(f.lines) }

// Write implements io.Writer.
func (f *logFilter) Write(p []byte) (int, error) {
	f.rest = append(f.rest, p...)
	for {
		end := bytes.IndexByte(f.rest, '\n') + 1
		if end == 0 && len(f.rest) > maxLine {
			end = len(f.rest)
		}
		if end == 0 {
			return len(p), nil
		}
		f.line(bytes.Clone(f.rest[:end]))
		f.rest = append([]byte(nil), f.rest[end:]...)
	}
}

func (f *logFilter) line(line []byte) {
	line, isMarked := bytes.CutPrefix(line, f.mark)
	if isMarked {
		f.onLine(line)
		f.isSkipped = isNoise(line)
	}
	if f.isSkipped || isNoise(line) || isMarked && f.isRepeated(line) {
		return
	}
	select {
	case f.lines <- line:
	default:
	}
}

// isRepeated reports whether a line says that a check for clients had the same result as the previous one: there are
// ten checks in a second (wake.go).
func (f *logFilter) isRepeated(line []byte) bool {
	m := origin.FindSubmatch(line)
	if m == nil || string(m[1]) != "nfs_try_lift_grace" {
		return false
	}
	found := line[len(m[0]):]
	same := bytes.Equal(found, f.lastCheck)
	f.lastCheck = found
	return same
}

// origin is the head of a line of Ganesha's own: the function, the component, and the severity.
var origin = regexp.MustCompile(`^[^\]]*\[[^\]]*\] (\S+) :([A-Z0-9 _]+) :([A-Z_]+) :`)

// isNoise reports whether a line reports the level of a part of Ganesha's log, or is one that only graceWaker reads. A
// line that a client could not be recorded is not chatter.
func isNoise(line []byte) bool {
	m := origin.FindSubmatch(line)
	if m == nil {
		return false
	}
	switch string(m[2]) {
	case "LOG":
		return string(m[3]) == "NULL"
	// each time that a client removes or renames the directory that is an export of its own (recovery.go)
	case "FSAL":
		return string(m[1]) == "fsal_remove" || string(m[1]) == "fsal_rename"
	case "CLIENT ID":
		level := string(m[3])
		return level == "INFO" || level == "DEBUG" || level == "EVENT" && string(m[1]) != "fs_add_clid"
	}
	return false
}
