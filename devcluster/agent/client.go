package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Streams are the three streams of a program, and the events of its client.
type Streams struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Signals are passed on to the program; nil for none.
	Signals <-chan os.Signal
	// Resized sends new sizes of the terminal; nil for none.
	Resized <-chan Size
}

// Error is the reason why the server did not carry out a request.
type Error string

func (e Error) Error() string { return string(e) }

// Exec runs a program over the connection, and returns the program's exit code. It closes the connection. When ctx
// ends, so does the connection, and the program gets SIGHUP.
func Exec(ctx context.Context, conn net.Conn, r Request, s Streams) (int, error) {
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	c := &client{conn: conn, credit: make(chan struct{}, window), ended: make(chan struct{})}
	defer close(c.ended)
	if err := writeJSON(conn, frameRequest, r); err != nil {
		return 0, err
	}
	go c.sendInput(s.Stdin)
	go c.sendEvents(s)
	code, err := c.receive(s)
	if ctx.Err() != nil {
		err = errors.Join(context.Cause(ctx), err)
	}
	return code, err
}

type client struct {
	conn   net.Conn
	mu     sync.Mutex // one frame at a time
	credit chan struct{}
	ended  chan struct{}
}

func (c *client) send(k kind, data []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return writeFrame(c.conn, k, data)
}

func (c *client) receive(s Streams) (int, error) {
	for {
		f, err := readFrame(c.conn)
		if err != nil {
			return 0, err
		}
		switch f.kind {
		case frameStdout:
			_, err = s.Stdout.Write(f.data)
		case frameStderr:
			_, err = s.Stderr.Write(f.data)
		case frameTaken:
			select {
			case <-c.credit:
			default: // more than were sent
			}
		case frameExit:
			if len(f.data) != 1 {
				return 0, errors.New("exit without a code")
			}
			return int(f.data[0]), nil
		case frameError:
			return 0, Error(f.data)
		}
		if err != nil {
			return 0, fmt.Errorf("pass output on: %w", err)
		}
	}
}

// sendInput may still be in a read of the client's input after the program has exited; the client then exits soon, too.
func (c *client) sendInput(from io.Reader) {
	buffer := make([]byte, chunk)
	for from != nil {
		n, err := from.Read(buffer)
		if n > 0 {
			select {
			case c.credit <- struct{}{}:
			case <-c.ended:
				return
			}
			if c.send(frameStdin, buffer[:n]) != nil {
				return
			}
		}
		if err != nil {
			break
		}
	}
	_ = c.send(frameStdinEnd, nil) // a program that has exited does not need it
}

func (c *client) sendEvents(s Streams) {
	for {
		select {
		case sig := <-s.Signals:
			if number, ok := sig.(unix.Signal); ok && c.send(frameSignal, []byte{byte(number)}) != nil {
				return
			}
		case size := <-s.Resized:
			if c.send(frameSize, encodeSize(size)) != nil {
				return
			}
		case <-c.ended:
			return
		}
	}
}

// Connect makes the server connect to an address as the server's machine sees it, and returns the connection to that
// address. It takes over conn.
func Connect(ctx context.Context, conn net.Conn, network, address string) (net.Conn, error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	err := writeJSON(conn, frameRequest, Request{Network: network, Address: address})
	var f frame
	if err == nil {
		f, err = readFrame(conn)
	}
	if err == nil && f.kind != frameConnected {
		err = Error(f.data)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}
