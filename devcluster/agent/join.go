package agent

import (
	"io"
	"net"
	"sync"
)

// Join copies both ways until both sides have ended. The end of one direction
// is passed on while the other goes on.
func Join(a, b net.Conn) {
	var both sync.WaitGroup
	both.Go(func() { copyAndEnd(a, b) })
	both.Go(func() { copyAndEnd(b, a) })
	both.Wait()
}

func copyAndEnd(to, from net.Conn) {
	_, err := io.Copy(to, from)
	if half, ok := to.(interface{ CloseWrite() error }); ok && err == nil {
		_ = half.CloseWrite()
		return
	}
	_ = to.Close()
	_ = from.Close()
}
