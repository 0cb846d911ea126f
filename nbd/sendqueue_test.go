package nbd

import (
	"bytes"
	"errors"
	"net"
	"slices"
	"testing"
)

// valve is a connection whose writes go through, wait or fail as the test says.
type valve struct {
	net.Conn // nil: only the methods below are used
	entered  chan struct{}
	result   chan error
	wrote    bytes.Buffer
	closed   bool
}

func (v *valve) Write(p []byte) (int, error) {
	v.entered <- struct{}{}
	if err := <-v.result; err != nil {
		return 0, err
	}
	return v.wrote.Write(p)
}

func (v *valve) Close() error { v.closed = true; return nil }

// fates records what owners are told.
type fates struct{ told []string }

type owner struct {
	name string
	to   *fates
}

func (o owner) frameDone(f fate) {
	o.to.told = append(o.to.told, o.name+[]string{" sent", " broken", " unsent"}[f])
}

func TestSendQueue(t *testing.T) {
	for _, c := range []struct {
		name     string
		err      error // of the first write
		withdraw string
		told     []string
		wire     string
	}{
		{"all goes well → in order", nil, "", []string{"a sent", "b sent", "c sent"}, "aAbBcC"},
		{"one withdrawn while it waits → never on the wire", nil, "b", []string{"a sent", "c sent"}, "aAcC"},
		{"one withdrawn that is being written → too late", nil, "a", []string{"a sent", "b sent", "c sent"}, "aAbBcC"},
		{"the first write fails → what waited was not sent", errors.New("cut"), "", []string{"b unsent", "c unsent", "a broken"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			v, to := &valve{entered: make(chan struct{}), result: make(chan error)}, &fates{}
			q := &sendQueue{conn: v}
			add := func(name, payload string) bool {
				return q.push(frame{head: []byte(name), payload: []byte(payload), owner: owner{name, to}})
			}
			if !add("a", "A") {
				t.Fatal("the first to send is not the writer")
			}
			drained := make(chan struct{})
			go func() { q.drain(); close(drained) }()
			<-v.entered // the writer is in its first write
			if add("b", "B") || add("c", "C") {
				t.Fatal("two writers")
			}
			if c.withdraw != "" && q.withdraw(owner{c.withdraw, to}) != (c.withdraw == "b") {
				t.Error("withdraw told the wrong thing")
			}
			v.result <- c.err
			for open := true; open; {
				select {
				case <-v.entered:
					v.result <- nil
				case <-drained:
					open = false
				}
			}
			if !slices.Equal(to.told, c.told) || v.wrote.String() != c.wire {
				t.Errorf("told %v, wrote %q", to.told, v.wrote.String())
			}
			if failed := c.err != nil; v.closed != failed || failed && add("d", "D") {
				t.Errorf("closed %v after %v", v.closed, c.err)
			}
		})
	}
}
