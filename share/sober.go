package share

import (
	"bytes"
	"io"
)

// chatter marks the lines in which Ganesha tells the level of each part of its log.
var chatter = []byte(":LOG :NULL :LOG:")

// sober passes whole lines on, except chatter.
type sober struct {
	to   io.Writer
	rest []byte
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
		if line := s.rest[:end]; !bytes.Contains(line, chatter) {
			_, _ = s.to.Write(line)
		}
		s.rest = append([]byte(nil), s.rest[end:]...)
	}
}
