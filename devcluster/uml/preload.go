package uml

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

//go:embed preload/ptrace.c
var preloadSource string

// knownRegisters is how many bytes of a thread's registers the kernel saves. It does not run on a processor that has
// more, except with the help of the library.
const knownRegisters = 2696

// NeedsPreload reports whether this machine's processor has more registers than the kernel can save.
func NeedsPreload() (bool, error) {
	size, err := registerBytes()
	return size > knownRegisters, err
}

// Compiler is the compiler that BuildPreload uses.
const Compiler = "gcc"

// BuildPreload compiles the library and replaces the file.
func BuildPreload(file string) error {
	cmd := exec.Command(Compiler, "-x", "c", "-", "-O2", "-fPIC", "-fno-tree-loop-distribute-patterns",
		"-shared", "-nostdlib", "-o", file)
	cmd.Stdin = strings.NewReader(preloadSource)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("compile %s: %w: %s", file, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// registerBytes gets the size from the real machine's kernel, with the help of a child process that it stops before its
// first instruction.
func registerBytes() (int, error) {
	runtime.LockOSThread() // ptrace knows threads, not processes
	defer runtime.UnlockOSThread()
	child, err := os.StartProcess("/proc/self/exe", []string{"child"}, &os.ProcAttr{Sys: &syscall.SysProcAttr{Ptrace: true}})
	if err != nil {
		return 0, fmt.Errorf("find the size of the registers: %w", err)
	}
	defer func() {
		_ = child.Kill()
		_, _ = child.Wait()
	}()
	var status unix.WaitStatus
	if _, err := unix.Wait4(child.Pid, &status, 0, nil); err != nil {
		return 0, fmt.Errorf("find the size of the registers: %w", err)
	}
	if !status.Stopped() {
		return 0, errors.New("find the size of the registers: the child does not stop")
	}
	const ntX86XState = 0x202
	buffer := make([]byte, 1<<16)
	v := unix.Iovec{Base: &buffer[0], Len: uint64(len(buffer))}
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_GETREGSET, uintptr(child.Pid), ntX86XState, uintptr(unsafe.Pointer(&v)), 0, 0)
	if errno != 0 {
		return 0, fmt.Errorf("find the size of the registers: %w", errno)
	}
	return int(v.Len), nil
}
