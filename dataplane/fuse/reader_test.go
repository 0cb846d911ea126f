package fuse

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// restless sends a value each time when a reader leaves the connection to Go's poller.
func restless(patience time.Duration, rested chan<- struct{}) func(*Server) {
	return func(s *Server) {
		s.warm = patience
		s.poll.rested = func() { rested <- struct{}{} }
	}
}

func await[T any](t *testing.T, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(10 * time.Second):
		t.Fatal("the server does something else")
	}
	return v
}

// waiting is the number of readers that wait.
func (k *kernel) waiting() int {
	k.server.mu.Lock()
	defer k.server.mu.Unlock()
	return maxWaiting - len(k.server.spare)
}

// Many requests hang. After each of them another request is read and answered. Then all are answered, and no surplus
// reader remains.
func TestRequestsThatHangDelayNoOther(t *testing.T) {
	k := newKernel(t)
	release := k.holdWrites()
	const hang = 50
	for i := range uint64(hang) {
		k.send(opWrite, i, imageNode, writeBody(4096*i, []byte{7}))
		status, _ := k.ask(opFsync, imageNode, make([]byte, 16))
		require.Zero(t, status)
	}
	release()
	answered := map[uint64]bool{}
	for range hang {
		unique, status, _ := k.reply()
		require.Zero(t, status)
		answered[unique] = true
	}
	assert.Len(t, answered, hang)
	assert.LessOrEqual(t, k.waiting(), maxWaiting)
	status, _ := k.ask(opFsync, imageNode, make([]byte, 16))
	assert.Zero(t, status)
}

// Between requests that follow one another, no reader uses Go's poller; two readers take turns.
func TestTheNextRequestIsTakenWithoutThePoller(t *testing.T) {
	rested := make(chan struct{}, 100)
	k := newKernelWith(t, restless(time.Hour, rested))
	await(t, rested) // no request was sent yet
	ask := func() {
		t.Helper()
		status, _ := k.ask(opFsync, imageNode, make([]byte, 16))
		require.Zero(t, status)
	}
	ask()
	await(t, rested) // a second reader, which had nothing to do
	for range 20 {
		require.Eventually(t, func() bool { return k.waiting() == maxWaiting }, 10*time.Second, time.Millisecond)
		ask()
	}
	release := k.holdWrites()
	for i := range uint64(maxWaiting) { // other readers are needed soon
		k.send(opWrite, i, imageNode, writeBody(0, []byte{7}))
	}
	ask()
	require.Eventually(t, func() bool { return sleepers(t, k.server.poll) == maxWaiting }, 10*time.Second, time.Millisecond)
	assert.Empty(t, rested, "a reader went to the poller")
	release()
	for range maxWaiting {
		k.reply()
	}
}

// If no request comes for some time, one reader remains, in Go's poller; it takes the next request.
func TestAnIdleConnectionHasOneReaderAndNoThread(t *testing.T) {
	k := newKernelWith(t, func(s *Server) { s.warm = time.Millisecond })
	for range 5 {
		status, _ := k.ask(opFsync, imageNode, make([]byte, 16))
		require.Zero(t, status)
		require.Eventually(t, func() bool { return k.waiting() == 1 && sleepers(t, k.server.poll) == 0 }, 10*time.Second, time.Millisecond)
	}
}

// Stop and the end of the connection reach readers in all kinds of wait.
func TestAllReadersEndAtOnce(t *testing.T) {
	ends := map[string]func(k *kernel){
		"stop":                      func(k *kernel) { k.server.Stop() },
		"the kernel closes its end": func(k *kernel) { _ = unix.Shutdown(k.fd, unix.SHUT_RDWR) },
	}
	for name, end := range ends {
		t.Run(name+", at rest", func(t *testing.T) {
			rested := make(chan struct{}, 100)
			k := newKernelWith(t, restless(time.Hour, rested))
			await(t, rested)
			end(k)
			await(t, k.server.Ended())
		})
		t.Run(name+", warm", func(t *testing.T) {
			rested := make(chan struct{}, 100)
			k := newKernelWith(t, restless(time.Hour, rested))
			release := k.holdWrites()
			for i := range uint64(4) { // more than one is read; both readers that wait in the end have read one
				k.send(opWrite, i, imageNode, writeBody(0, []byte{7}))
			}
			status, _ := k.ask(opFsync, imageNode, make([]byte, 16))
			require.Zero(t, status)
			release()
			for range 4 {
				k.reply()
			}
			require.Eventually(t, func() bool { return k.waiting() == maxWaiting }, 10*time.Second, time.Millisecond)
			end(k)
			await(t, k.server.Ended())
		})
	}
}

func newTestPoll(t *testing.T) (p *poll, theirs int) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	require.NoError(t, err)
	p, err = newPoll(pair[0])
	require.NoError(t, err)
	t.Cleanup(func() {
		p.close()
		_ = unix.Close(pair[0])
		_ = unix.Close(pair[1])
	})
	return p, pair[1]
}

func put(t *testing.T, fd int) {
	t.Helper()
	_, err := unix.Write(fd, []byte("x"))
	require.NoError(t, err)
}

// sleepers is the number of waiters with which a thread sleeps.
func sleepers(t *testing.T, p *poll) (n int) {
	t.Helper()
	calls, err := filepath.Glob("/proc/self/task/*/syscall") // <number> <first argument> …
	require.NoError(t, err)
	for _, call := range calls {
		line, _ := os.ReadFile(call) // a thread may have ended
		fields := strings.Fields(string(line))
		for _, w := range p.waiters {
			if len(fields) > 1 && fields[1] == fmt.Sprintf("%#x", w.epoll) {
				n++
			}
		}
	}
	return n
}

// One request wakes one reader. The other reader sleeps until it is stopped.
func TestARequestWakesOneWaiter(t *testing.T) {
	p, theirs := newTestPoll(t)
	woken := make(chan *waiter, maxWaiting)
	for _, w := range p.waiters {
		go func() {
			w.wait(time.Hour)
			woken <- w
		}()
	}
	require.Eventually(t, func() bool { return sleepers(t, p) == maxWaiting }, 10*time.Second, time.Millisecond)
	put(t, theirs)
	await(t, woken)
	select {
	case <-woken:
		t.Fatal("both were woken")
	case <-time.After(20 * time.Millisecond):
	}
	p.wakeAll()
	await(t, woken)
	assert.True(t, p.waiters[0].wait(0), "stop is forgotten")
}

// After a connection was at rest, a request wakes nothing in Go's poller until the connection rests again.
func TestABusyPollDoesNotUseGosPoller(t *testing.T) {
	p, theirs := newTestPoll(t)
	rested := make(chan struct{}, 100)
	p.rested = func() { rested <- struct{}{} }
	rest, err := p.rest.SyscallConn()
	require.NoError(t, err)
	isReadable := func() (is bool) {
		require.NoError(t, rest.Control(func(fd uintptr) {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
			is = n > 0 || err != nil
		}))
		return is
	}
	for range 3 {
		ended := make(chan error)
		go func() { ended <- p.awaitAtRest() }()
		await(t, rested)
		put(t, theirs)
		require.NoError(t, await(t, ended))
		put(t, theirs)
		assert.False(t, isReadable(), "Go's poller is woken")
		assert.True(t, p.waiters[0].wait(time.Hour))
		for range 2 {
			_, err := unix.Read(p.conn, make([]byte, 1))
			require.NoError(t, err)
		}
		assert.False(t, p.waiters[0].wait(0))
	}
	p.wakeAll()
	require.NoError(t, p.awaitAtRest())
}
