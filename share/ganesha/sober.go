package ganesha

import (
	"bytes"
	"io"
	"regexp"
)

// sober reads the server's log: it has each line heard, and passes on those that someone may want to read. The server's own lines begin
// with a mark that no client knows (config.go), so that one which a client has put into a value by a line feed is told apart. Such a
// rest of a line goes where its beginning went.
type sober struct {
	mark    []byte
	hear    func(line []byte) // is told each line with the mark, without it
	lines   chan []byte       // to be passed on
	rest    []byte
	quieted bool   // the last line of the server's own was chatter
	looked  []byte // what the last look for clients found
}

const (
	// maxLine bounds what is kept of a line without an end.
	maxLine = 16 << 10
	// maxUnread is how many lines wait for the log's reader. More are lost: a log must not stop the server.
	maxUnread = 1000
)

// newSober passes lines on to a writer until close.
func newSober(to io.Writer, mark string, hear func([]byte)) *sober {
	s := &sober{mark: []byte(mark + " "), hear: hear, lines: make(chan []byte, maxUnread)}
	go func() {
		for line := range s.lines {
			_, _ = to.Write(line)
		}
	}()
	return s
}

// close ends the passing on, once what was written is passed on. Nothing may be written after it.
func (s *sober) close() { close(s.lines) }

// Write implements io.Writer.
func (s *sober) Write(p []byte) (int, error) {
	s.rest = append(s.rest, p...)
	for {
		end := bytes.IndexByte(s.rest, '\n') + 1
		if end == 0 && len(s.rest) > maxLine {
			end = len(s.rest)
		}
		if end == 0 {
			return len(p), nil
		}
		s.line(bytes.Clone(s.rest[:end]))
		s.rest = append([]byte(nil), s.rest[end:]...)
	}
}

func (s *sober) line(line []byte) {
	line, isMarked := bytes.CutPrefix(line, s.mark)
	if isMarked {
		s.hear(line)
		s.quieted = isChatter(line)
	}
	if s.quieted || isChatter(line) || isMarked && s.isAsBefore(line) {
		return
	}
	select {
	case s.lines <- line:
	default:
	}
}

// isAsBefore tells whether a line says that a look for clients found what the one before did: there are ten in a second (wake.go).
func (s *sober) isAsBefore(line []byte) bool {
	m := origin.FindSubmatch(line)
	if m == nil || string(m[1]) != "nfs_try_lift_grace" {
		return false
	}
	found := line[len(m[0]):]
	same := bytes.Equal(found, s.looked)
	s.looked = found
	return same
}

// origin is the head of a line of Ganesha's own: which function says it, of which component, how grave it is.
var origin = regexp.MustCompile(`^[^\]]*\[[^\]]*\] (\S+) :([A-Z0-9 _]+) :([A-Z_]+) :`)

// isChatter tells whether a line says the level of a part of Ganesha's log, or is one that only waking reads. That a client could
// not be recorded is none.
func isChatter(line []byte) bool {
	m := origin.FindSubmatch(line)
	if m == nil {
		return false
	}
	switch string(m[2]) {
	case "LOG":
		return string(m[3]) == "NULL"
	case "FSAL": // each time that a client removes or renames the directory that is an export of its own (recovery.go)
		return string(m[1]) == "fsal_remove" || string(m[1]) == "fsal_rename"
	case "CLIENT ID":
		level := string(m[3])
		return level == "INFO" || level == "DEBUG" || level == "EVENT" && string(m[1]) != "fs_add_clid"
	}
	return false
}
