package ganesha

import (
	"bytes"
	"fmt"
	"os"

	"github.com/sirupsen/logrus"
)

// openState opens the file with the state of a process's main thread. A stop by a signal or a debugger stops all
// threads, so the state of the main thread is enough. The file of the thread costs less to read than the file of the
// process, for which the kernel adds up all threads. Without the file, which is nil then, a server counts as running.
//
// The open file belongs to this process permanently: it does not show another process that gets the same number later.
func openState(pid int, log *logrus.Entry) *os.File {
	f, err := os.Open(fmt.Sprintf("/proc/%d/task/%d/stat", pid, pid))
	if err != nil {
		log.WithError(err).Warn("Cannot read the state of the NFS server's process. A suspended server is detected some seconds later than usual")
	}
	return f
}

// IsSuspended reports whether a signal (such as SIGSTOP) or a debugger has stopped the server.
func (s *Server) IsSuspended() bool {
	// the number, the name of 64 bytes at most, and the state are at the start
	var text [256]byte
	n, _ := s.state.ReadAt(text[:], 0)
	return isSuspended(text[:n])
}

// isSuspended parses /proc/PID/stat (proc_pid_stat(5)). The name, the second field, may have any byte, and no later
// field has a parenthesis.
func isSuspended(stat []byte) bool {
	end := bytes.LastIndexByte(stat, ')')
	if end < 0 || len(stat) < end+3 {
		return false
	}
	return stat[end+2] == 'T' || stat[end+2] == 't'
}
