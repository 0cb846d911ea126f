package share

import (
	"bytes"
	"io"
	"slices"
)

// chatter marks the lines in which Ganesha tells the level of each part of its log, and those that only departures read.
var chatter = [][]byte{[]byte(":LOG :NULL :LOG:"), []byte(":CLIENT ID :EVENT :"), []byte(":CLIENT ID :INFO :"), []byte(":CLIENT ID :DEBUG :")}

// sober passes whole lines on, except chatter.
type sober struct {
	to   io.Writer
	hear func([]byte) // is told each line, if it is set
	rest []byte
}

func isChatter(line []byte) bool {
	return slices.ContainsFunc(chatter, func(mark []byte) bool { return bytes.Contains(line, mark) })
}

// maxLine bounds what is kept of a line without an end.
const maxLine = 16 << 10

// Write implements io.Writer. What its reader does not take is lost: a log must not stop
// the server.
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
		line := s.rest[:end]
		if s.hear != nil {
			s.hear(line)
		}
		if !isChatter(line) {
			_, _ = s.to.Write(line)
		}
		s.rest = append([]byte(nil), s.rest[end:]...)
	}
}
