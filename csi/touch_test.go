package csi

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	mountutils "k8s.io/mount-utils"

	"github.com/longhorn-lep/longhorn-manager/util/flow"
	"github.com/longhorn-lep/longhorn-manager/util/mount"
)

// linedNetwork has a server that the test can stop.
type linedNetwork struct {
	fakeNetwork
	mu      sync.Mutex
	asked   int
	serving netip.AddrPort
	silent  error
	lines   []net.Conn // the server's ends
}

func (l *linedNetwork) Connect(context.Context, netip.AddrPort) (netip.AddrPort, net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked++
	if l.silent != nil && !errors.Is(l.silent, flow.ErrNoPeer) {
		return netip.AddrPort{}, nil, l.silent
	}
	here, there := net.Pipe()
	l.lines = append(l.lines, there)
	return l.serving, here, l.silent
}

// end stops the server. silent and serving are the results of the next questions.
func (l *linedNetwork) end(silent error, serving string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.silent = silent
	if serving != "" {
		l.serving = netip.MustParseAddrPort(serving)
	}
	for _, line := range l.lines {
		_ = line.Close()
	}
	l.lines = nil
}

func TestTheMountOfARestartedShareIsTouched(t *testing.T) {
	const pod, other = "10.1.0.4:2049", "10.1.1.4:2049"
	share, boom := netip.MustParseAddr("10.96.0.9"), errors.New("no answer")
	for _, c := range []struct {
		name string
		act  func(l *linedNetwork)
		want int
	}{
		{"it serves on → it is not", func(*linedNetwork) { time.Sleep(time.Minute) }, 0},
		{"its server ends, and another one answers at once → at once", func(l *linedNetwork) { l.end(nil, "") }, 1},
		{"another one answers later → then", func(l *linedNetwork) {
			l.end(boom, "")
			time.Sleep(time.Second)
			l.end(nil, "")
			time.Sleep(followRetryInterval)
		}, 1},
		{"its server ends twice → twice", func(l *linedNetwork) {
			l.end(nil, "")
			synctest.Wait()
			l.end(nil, "")
		}, 2},
		{"another pod serves, and the former one's connection stays → when that is seen", func(l *linedNetwork) {
			l.mu.Lock()
			l.serving = netip.MustParseAddrPort(other)
			l.mu.Unlock()
			time.Sleep(followInterval)
		}, 1},
		{"the kernel does not track connections → all the same", func(l *linedNetwork) {
			l.end(flow.ErrNoPeer, "")
			synctest.Wait()
			l.end(flow.ErrNoPeer, "")
		}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				logger, _ := logtest.NewNullLogger()
				l := &linedNetwork{serving: netip.MustParseAddrPort(pod)}
				var touched []netip.Addr
				f := &follower{
					servers: func() ([]netip.Addr, error) { return []netip.Addr{share}, nil },
					network: l, log: logrus.NewEntry(logger), now: time.Now, serverExited: make(chan struct{}, 1),
					touch: func(server netip.Addr) { touched = append(touched, server) },
				}
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- f.run(ctx) }()
				time.Sleep(followInterval)
				synctest.Wait()
				assert.Empty(t, touched, "the first answer")
				c.act(l)
				synctest.Wait()
				cancel()
				require.NoError(t, <-ended)
				assert.Len(t, touched, c.want)
				l.mu.Lock()
				defer l.mu.Unlock()
				for _, line := range l.lines {
					_, err := line.Write([]byte("x"))
					assert.Error(t, err, "a connection stays")
				}
			})
		})
	}
}

// A touch that waits in the kernel delays nothing, and the number of touches is limited.
func TestATouchIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		files := &hangingFiles{hang: hang}
		logger, _ := logtest.NewNullLogger()
		u := newToucher(mount.NewWith(mountutils.NewFakeMounter(nil), nil, files), "/kubelet", logrus.NewEntry(logger))
		share := netip.MustParseAddr("10.96.0.9")
		for range 2 * maxTouches {
			u.touch(share)
		}
		u.touch(netip.MustParseAddr("10.96.0.8"))
		synctest.Wait()
		assert.Equal(t, int64(maxTouches), files.asked.Load(), "it is mounted at /kubelet/vol")
		close(hang)
		synctest.Wait()
		u.touch(share)
		synctest.Wait()
		assert.Equal(t, int64(maxTouches+1), files.asked.Load())
	})
}

// hangingFiles has one mounted share. Its server gives no answer while hang is open.
type hangingFiles struct {
	mount.Files
	hang  chan struct{}
	asked atomic.Int64
}

func (h *hangingFiles) Table() ([]mount.Entry, error) {
	return []mount.Entry{{Path: "/kubelet/vol", Type: "nfs4", Source: "10.96.0.9:/vol"}, {Path: "/home", Type: "nfs4", Source: "10.96.0.8:/home"}}, nil
}

func (h *hangingFiles) Statfs(string) (mount.Statistics, error) {
	h.asked.Add(1)
	<-h.hang
	return mount.Statistics{}, nil
}
