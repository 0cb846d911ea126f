package types

import (
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/util/validation"
)

func TestCheckDiskPath(t *testing.T) {
	for _, p := range []string{
		"/", "/etc", "/etc/kubernetes/manifests", "/proc/1", "/sys", "/dev", "/dev/longhorn", "/boot", "/usr/local", "/bin", "/sbin", "/lib64",
		"/run", "/run/longhorn", "/var", "/var/lib", "/var/run/x", "/var/lib/kubelet", "/var/lib/kubelet/pods", "/root", "//etc/", "/mnt/../etc", "/var/lib/etcd",
	} {
		assert.ErrorIs(t, CheckDiskPath(p), ErrPathSystem, p)
	}
	for _, p := range []string{"", "mnt", "./mnt", "../etc"} {
		assert.ErrorIs(t, CheckDiskPath(p), ErrPathRelative, p)
	}
	for _, p := range []string{
		"/var/lib/longhorn", "/var/lib/longhorn/", "/mnt/disk", "/mnt", "/data", "/opt/x", "/srv", "/home/u/disk", "/etcetera", "/devices", "/run-d", "/var/lib/kubelet2", "/mnt/etc",
	} {
		assert.NoError(t, CheckDiskPath(p), p)
	}
}

func TestUncleanPathPattern(t *testing.T) {
	unclean := regexp.MustCompile(UncleanPathPattern)
	for _, p := range []string{"/", "/a", "/a/b", "/a.b/c", "/a/..b", "/a/.b", "/a/", "//a", "/a//b", "/a/./b", "/a/..", "/a/../b", "/a/.", "/.", "/..", "/a b"} {
		assert.Equal(t, path.Clean(p) != p, unclean.MatchString(p), p)
	}
}

func TestTagPattern(t *testing.T) {
	tag := regexp.MustCompile(TagPattern)
	for _, s := range []string{
		"", " ", "a", "A", "a b", "-a", "a-", "a.b", "a_b", "example.com/fast", "/a", "a/", "a/b/c", ".*invalid", "Example.com/a", "ä",
		strings.Repeat("x", 63), strings.Repeat("x", 64),
	} {
		assert.Equal(t, len(validation.IsQualifiedName(s)) == 0, tag.MatchString(s), s)
	}
}
