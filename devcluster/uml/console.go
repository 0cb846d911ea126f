package uml

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// ConsolePath returns the path of the kernel's socket for commands, as the real machine sees it while the process runs.
func ConsolePath(pid int) string {
	return fmt.Sprintf("/proc/%d/root%s", pid, consoleFile)
}

// The protocol of the management console (arch/um/drivers/mconsole.h). Each direction sends a datagram with magic,
// version, length and text. An answer also has an error flag and then a flag that says whether more datagrams follow.
const (
	consoleMagic   = 0xcafebabe
	consoleVersion = 2
	consoleText    = 512
)

// ErrRefused means that the kernel refused a command.
var ErrRefused = errors.New("the guest's kernel refused")

// PlugDisk adds a disk to the running kernel. path is its console. The caller's thread must be in the network namespace
// of the kernel, because the answer is sent to a socket without a path.
func PlugDisk(ctx context.Context, path string, index int, image string) error {
	_, err := console(ctx, path, fmt.Sprintf("config ubd%d=%s", index, image))
	return err
}

func console(ctx context.Context, path, command string) (string, error) {
	if len(command) >= consoleText {
		return "", fmt.Errorf("console command of %d bytes is too long", len(command))
	}
	// With "@" the name is an abstract one, to which the answer is sent.
	local := &net.UnixAddr{Name: fmt.Sprintf("@devcluster-console-%d", time.Now().UnixNano()), Net: "unixgram"}
	conn, err := net.DialUnix("unixgram", local, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return "", fmt.Errorf("open the guest's console: %w", err)
	}
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })
	defer stop()
	request := make([]byte, 12, 12+consoleText)
	binary.NativeEndian.PutUint32(request, consoleMagic)
	binary.NativeEndian.PutUint32(request[4:], consoleVersion)
	binary.NativeEndian.PutUint32(request[8:], uint32(len(command)))
	request = append(request, command...)
	request = append(request, make([]byte, consoleText-len(command))...)
	if _, err := conn.Write(request); err != nil {
		return "", fmt.Errorf("command the guest's console: %w", err)
	}
	return readAnswer(conn)
}

func readAnswer(conn net.Conn) (string, error) {
	var text strings.Builder
	for {
		buffer := make([]byte, 12+consoleText)
		n, err := conn.Read(buffer)
		if err != nil {
			return "", fmt.Errorf("answer of the guest's console: %w", err)
		}
		if n < 12 {
			return "", fmt.Errorf("answer of the guest's console: %d bytes", n)
		}
		failed := binary.NativeEndian.Uint32(buffer) != 0
		more := binary.NativeEndian.Uint32(buffer[4:]) != 0
		length := min(int(binary.NativeEndian.Uint32(buffer[8:])), n-12)
		text.Write(bytes.TrimRight(buffer[12:12+length], "\x00"))
		if failed {
			return "", fmt.Errorf("%w: %s", ErrRefused, strings.TrimSpace(text.String()))
		}
		if !more {
			return strings.TrimSpace(text.String()), nil
		}
	}
}
