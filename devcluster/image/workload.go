package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// WorkloadName is the reference of the image for test workloads.
const WorkloadName = "localhost/workload:dev"

// workloadPrograms are copied from this machine with the libraries that they need. They take precedence over busybox
// applets of the same name.
var workloadPrograms = []string{
	"bash", "fio", "curl", "sha256sum", "md5sum", "dd", "cp", "mv", "ls", "cat", "stat", "df", "du", "sync", "truncate", "sleep",
	"mkfs.ext4", "e2fsck", "resize2fs", "tune2fs", "dumpe2fs", "blockdev", "lsblk", "blkid", "fallocate", "findmnt", "losetup", "flock",
}

// brokenApplets resolve host names with the static C library, which crashes in Debian's busybox-static. Use curl and
// bash's /dev/tcp instead.
var brokenApplets = map[string]bool{
	"wget": true, "nc": true, "telnet": true, "ping": true, "ping6": true, "ftpget": true, "ftpput": true, "traceroute": true, "traceroute6": true,
}

// BuildWorkload writes an image for test workloads. The image has fio, bash, checksum and file system tools, copied
// from this machine with their shared libraries. Busybox provides all other commands. Extra programs are found on PATH.
// A missing program is an error that names it.
func BuildWorkload(ctx context.Context, out string, extra []string) error {
	l := NewLayer()
	for link, target := range map[string]string{"/bin": "usr/bin", "/sbin": "usr/sbin", "/lib": "usr/lib", "/lib64": "usr/lib64"} {
		l.Symlink(link, target)
	}
	for _, dir := range []string{"/proc", "/sys", "/dev", "/run", "/mnt", "/data", "/var/lib", "/root", "/usr/sbin", "/usr/lib64"} {
		l.Dir(dir, 0o755)
	}
	l.Dir("/tmp", 0o1777)
	l.Bytes("/etc/passwd", []byte("root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/:/bin/false\n"), 0o644)
	l.Bytes("/etc/group", []byte("root:x:0:\nnogroup:x:65534:\n"), 0o644)
	for _, program := range append(append([]string{}, workloadPrograms...), extra...) {
		if err := addProgram(ctx, l, program); err != nil {
			return err
		}
	}
	// Busybox's own shell would run its applets before any other program.
	l.Symlink("/usr/bin/sh", "bash")
	if err := addBusybox(ctx, l); err != nil {
		return err
	}
	return Build(out, Config{
		Name: WorkloadName,
		Cmd:  []string{"/bin/sleep", "infinity"},
		Env:  []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
	}, "", l)
}

// addProgram adds one program of this machine and every library that ldd names.
func addProgram(ctx context.Context, l *Layer, name string) error {
	found, err := exec.LookPath(name)
	if err != nil {
		return fmt.Errorf("workload image: program %s is not installed: %w", name, err)
	}
	if err := l.File(merged("/usr/bin/"+filepath.Base(found)), found); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "ldd", found)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	out, err := cmd.CombinedOutput()
	if err != nil {
		if strings.Contains(string(out), "not a dynamic executable") {
			return nil
		}
		return fmt.Errorf("workload image: list libraries of %s: %w: %s", found, err, strings.TrimSpace(string(out)))
	}
	libraries, err := parseLDD(string(out))
	if err != nil {
		return fmt.Errorf("workload image: libraries of %s: %w", found, err)
	}
	for _, library := range libraries {
		if err := l.File(merged(library), library); err != nil {
			return err
		}
	}
	return nil
}

// parseLDD reads the absolute paths out of ldd's lines, which are
//
//	libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x…)
//	/lib64/ld-linux-x86-64.so.2 (0x…)
//	linux-vdso.so.1 (0x…)
func parseLDD(out string) ([]string, error) {
	var paths []string
	for line := range strings.SplitSeq(out, "\n") {
		line = strings.TrimSpace(line)
		if strings.Contains(line, "=> not found") {
			return nil, fmt.Errorf("missing library: %s", line)
		}
		if _, after, ok := strings.Cut(line, "=> "); ok {
			line = after
		}
		if p, _, _ := strings.Cut(line, " ("); strings.HasPrefix(p, "/") {
			paths = append(paths, p)
		}
	}
	return paths, nil
}

// merged maps the paths that are links in the image to their targets.
func merged(p string) string {
	for _, dir := range []string{"/bin/", "/sbin/", "/lib/", "/lib64/"} {
		if strings.HasPrefix(p, dir) {
			return "/usr" + p
		}
	}
	return p
}

// addBusybox adds the static busybox. It also adds a link for each applet that works, unless a real program has the
// same name.
func addBusybox(ctx context.Context, l *Layer) error {
	found, err := exec.LookPath("busybox")
	if err != nil {
		return errors.New("workload image: busybox is not installed: install the Debian package busybox-static")
	}
	if err := l.File("/usr/bin/busybox", found); err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, found, "--list").Output()
	if err != nil {
		return fmt.Errorf("workload image: list busybox applets: %w", err)
	}
	for applet := range strings.FieldsSeq(string(out)) {
		if !brokenApplets[applet] {
			l.Symlink("/usr/bin/"+applet, "busybox")
		}
	}
	return nil
}
