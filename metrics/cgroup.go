package metrics

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// podGroups returns the paths at which the kubelet may create the control group of a pod, relative to the node's
// control groups: as a slice of systemd, or as plain directories.
func podGroups(pod *corev1.Pod) []string {
	slice, directory := "kubepods", "kubepods"
	if qos := strings.ToLower(string(pod.Status.QOSClass)); pod.Status.QOSClass != corev1.PodQOSGuaranteed {
		slice, directory = "kubepods.slice/kubepods-"+qos, "kubepods/"+qos
	}
	uid := string(pod.UID)
	return []string{
		fmt.Sprintf("%s.slice/%s-pod%s.slice", slice, filepath.Base(slice), strings.ReplaceAll(uid, "-", "_")),
		filepath.Join(directory, "pod"+uid),
	}
}

// ofPod returns the CPU and memory that the processes of a pod of this node use, as the kernel counts them for the
// pod's control group of version 2. Memory does not include pages that the kernel can reclaim immediately; the
// kubelet counts in the same way. It returns false if the kubelet creates control groups elsewhere, or if they are of
// version 1.
func (u *usage) ofPod(groups string, pod *corev1.Pod) (figures, bool) {
	for _, group := range podGroups(pod) {
		dir := filepath.Join(groups, group)
		cpu, ok := keyed(filepath.Join(dir, "cpu.stat"), "usage_usec")
		if !ok {
			continue
		}
		memory, isKnown := number(filepath.Join(dir, "memory.current"))
		inactive, _ := keyed(filepath.Join(dir, "memory.stat"), "inactive_file")
		if !isKnown {
			return figures{}, false
		}
		f := figures{memoryBytes: max(0, memory-inactive)}
		f.milliCPU, f.isMeasured = u.pod.next(u.clock.Now(), float64(cpu)/1e6)
		return f, true
	}
	return figures{}, false
}

func number(path string) (int64, bool) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil
}

// keyed returns the number after a key, in a file whose lines have a key and a number.
func keyed(path, key string) (int64, bool) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, key+" "); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
