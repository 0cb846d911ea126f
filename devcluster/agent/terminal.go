package agent

import (
	"encoding/binary"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// openTerminal creates a pseudo terminal. It returns the program's side.
func (p *program) openTerminal(size Size) (theirs []*os.File, err error) {
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	p.stdin, p.stdout, p.isTerminal = ours, ours, true
	number := 0
	err = control(ours, func(fd int) (err error) {
		if number, err = unix.IoctlGetInt(fd, unix.TIOCGPTN); err != nil {
			return err
		}
		if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
			return err
		}
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, size.kernel())
	})
	if err != nil {
		return nil, fmt.Errorf("set up terminal: %w", err)
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = tty, tty, tty
	p.cmd.SysProcAttr.Setctty = true
	return []*os.File{tty}, nil
}

func (p *program) resize(s Size) error {
	return control(p.stdin, func(fd int) error { return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, s.kernel()) })
}

func (s Size) kernel() *unix.Winsize { return &unix.Winsize{Row: s.Rows, Col: s.Columns} }

// control calls f with the descriptor. File.Fd would make the descriptor blocking, and then no deadline would end a
// read.
func control(f *os.File, call func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = call(int(fd)) }); err != nil {
		return err
	}
	return failed
}

func encodeSize(s Size) []byte {
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, s.Rows), s.Columns)
}

func decodeSize(data []byte) Size {
	return Size{Rows: binary.BigEndian.Uint16(data), Columns: binary.BigEndian.Uint16(data[2:])}
}
