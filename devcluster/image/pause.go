package image

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"runtime"
)

// PauseName is the reference of the sandbox image.
const PauseName = "localhost/pause:dev"

// BuildPause writes the sandbox image: a single program that waits forever and so keeps a pod's namespaces open. The
// program is assembled here, byte by byte, so that a cluster needs neither a compiler nor a download. Only amd64 is
// supported.
func BuildPause(out string) error {
	program, err := pauseProgram(runtime.GOARCH)
	if err != nil {
		return err
	}
	l := NewLayer()
	l.Bytes("/pause", program, 0o755)
	return Build(out, Config{Name: PauseName, Entrypoint: []string{"/pause"}}, "", l)
}

// pauseCode makes the process ignore SIGCHLD, so that the kernel reaps the children of a shared PID namespace. Then it
// calls pause(2) forever.
var pauseCode = []byte{
	0xb8, 0x0d, 0x00, 0x00, 0x00, // mov eax, 13 (rt_sigaction)
	0xbf, 0x11, 0x00, 0x00, 0x00, // mov edi, 17 (SIGCHLD)
	0x48, 0x8d, 0x35, 0x14, 0x00, 0x00, 0x00, // lea rsi, [rip+20] (the action below)
	0x31, 0xd2, // xor edx, edx
	0x41, 0xba, 0x08, 0x00, 0x00, 0x00, // mov r10d, 8 (size of the mask)
	0x0f, 0x05, // syscall
	0xb8, 0x22, 0x00, 0x00, 0x00, // mov eax, 34 (pause)
	0x0f, 0x05, // syscall
	0xeb, 0xf7, // jmp back to mov eax, 34
	0x90,                   // padding
	1, 0, 0, 0, 0, 0, 0, 0, // action: handler SIG_IGN,
	0, 0, 0, 0, 0, 0, 0, 0, // flags,
	0, 0, 0, 0, 0, 0, 0, 0, // restorer,
	0, 0, 0, 0, 0, 0, 0, 0, // mask
}

// pauseProgram wraps the code in the smallest ELF file: a header of 64 bytes and one loadable segment, described in 56
// bytes, that is the whole file.
func pauseProgram(arch string) ([]byte, error) {
	if arch != "amd64" {
		return nil, fmt.Errorf("make sandbox image: architecture %s is not supported, only amd64", arch)
	}
	const base, headers = 0x400000, 64 + 56
	size := uint64(headers + len(pauseCode))
	var b bytes.Buffer
	b.Write([]byte{0x7f, 'E', 'L', 'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	for _, field := range []any{
		uint16(2), uint16(62), uint32(1), // executable, x86-64, version
		uint64(base + headers), uint64(64), uint64(0), uint32(0), // entry, program headers at 64, no sections
		uint16(64), uint16(56), uint16(1), uint16(0), uint16(0), uint16(0), // sizes and counts
		uint32(1), uint32(5), // PT_LOAD, readable and executable
		uint64(0), uint64(base), uint64(base), size, size, uint64(0x1000),
	} {
		if err := binary.Write(&b, binary.LittleEndian, field); err != nil {
			return nil, fmt.Errorf("make sandbox image: %w", err)
		}
	}
	b.Write(pauseCode)
	return b.Bytes(), nil
}
