// Package agent runs programs on a machine that can only be reached over a network link: its server runs inside, its
// client outside. Unlike a remote shell it does not authenticate clients; the interface on which it listens limits
// which clients can reach it. It must not know on which machine it runs.
//
// One connection serves one request. The client sends a Request. For a program, client and server then exchange frames
// until one frame reports the exit code. For a connection to an address inside, the frames are followed by its bytes.
package agent

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
)

// Request is the request of a client: a program, or an address to connect to.
type Request struct {
	Argv []string `json:"argv,omitempty"`
	Env  []string `json:"env,omitempty"`
	// Terminal gives the program a terminal of the size, nil pipes.
	Terminal *Size `json:"terminal,omitempty"`
	// Network and Address, as for net.Dial, request a connection.
	Network string `json:"network,omitempty"`
	Address string `json:"address,omitempty"`
}

// Size is the size of a terminal.
type Size struct {
	Rows, Columns uint16
}

type kind byte

// Frames of the client.
const (
	frameRequest kind = iota + 1
	frameStdin
	frameStdinEnd
	frameSignal
	frameSize
)

// Frames of the server.
const (
	frameStdout kind = iota + 65
	frameStderr
	// frameTaken reports that the program has received one frame of standard input.
	frameTaken
	// frameExit ends the connection: one byte, the exit code.
	frameExit
	// frameError ends the connection with the reason why the request was not carried out.
	frameError
	// frameConnected is followed by the bytes of the requested connection.
	frameConnected
)

const (
	maxFrame = 1 << 20
	chunk    = 32 << 10
	// window is how many frames of standard input the client sends before it waits for a frameTaken. So the server can
	// store them all, and continues to read signals while the program reads nothing.
	window = 16
)

type frame struct {
	kind kind
	data []byte
}

func writeFrame(w io.Writer, k kind, data []byte) error {
	buffer := make([]byte, 5, 5+len(data))
	buffer[0] = byte(k)
	binary.BigEndian.PutUint32(buffer[1:], uint32(len(data)))
	if _, err := w.Write(append(buffer, data...)); err != nil {
		return fmt.Errorf("write frame: %w", err)
	}
	return nil
}

func readFrame(r io.Reader) (frame, error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return frame{}, fmt.Errorf("read frame: %w", err)
	}
	length := binary.BigEndian.Uint32(head[1:])
	if length > maxFrame {
		return frame{}, fmt.Errorf("read frame: %d bytes, at most %d are allowed", length, maxFrame)
	}
	f := frame{kind: kind(head[0]), data: make([]byte, length)}
	if _, err := io.ReadFull(r, f.data); err != nil {
		return frame{}, fmt.Errorf("read frame: %w", err)
	}
	return f, nil
}

func writeJSON(w io.Writer, k kind, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode frame: %w", err)
	}
	return writeFrame(w, k, raw)
}
