package deploy

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// TestThreatsHaveTheirTests checks that the tests that docs/SECURITY.md names exist.
func TestThreatsHaveTheirTests(t *testing.T) {
	text, err := os.ReadFile("../docs/SECURITY.md")
	require.NoError(t, err)
	there := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	require.NoError(t, filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, m := range declared.FindAllStringSubmatch(string(source), -1) {
			there[m[1]] = true
		}
		return err
	}))
	named := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(string(text), -1)
	require.Greater(t, len(named), 20)
	for _, m := range named {
		assert.True(t, there[m[1]], "docs/SECURITY.md names %s, which does not exist", m[1])
	}
}

// TestNetworkPoliciesLeavePortsOpen checks which ports the policies leave open on which pods, and for how many kinds
// of peers.
func TestNetworkPoliciesLeavePortsOpen(t *testing.T) {
	open := func(pod labels.Set) map[int]int { // by port: the number of kinds of peers; 0: all peers
		ports := map[int]int{}
		selected := false
		for _, p := range ofKind[networkingv1.NetworkPolicy](t, "NetworkPolicy") {
			selector, err := metav1.LabelSelectorAsSelector(&p.Spec.PodSelector)
			require.NoError(t, err)
			if !selector.Matches(pod) {
				continue
			}
			selected = true
			assert.Equal(t, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}, p.Spec.PolicyTypes)
			for _, rule := range p.Spec.Ingress {
				for _, port := range rule.Ports {
					ports[port.Port.IntValue()] = len(rule.From)
				}
			}
		}
		assert.True(t, selected, "no policy is about %v", pod)
		return ports
	}
	assert.Equal(t, map[int]int{types.APIPort: 0}, open(labels.Set{"app": "longhorn-manager"}))
	assert.Equal(t, map[int]int{types.ReplicaPort: 1}, open(types.InstanceManagerSelector("node-1")))
	assert.Equal(t, map[int]int{types.NFSPort: 0, types.ShareHealthPort: 1}, open(types.ShareManagerSelector("vol")))
	assert.Empty(t, open(labels.Set{"app": "longhorn-csi-plugin"}))
	assert.Empty(t, open(labels.Set{"app": "longhorn-csi-controller"}))
}

// TestPodsThatNeedNoRightsOnTheirNodeHaveNone checks that every container is one of two kinds. Either docs/SECURITY.md
// gives the reason why it is privileged, or it has no rights on its node.
func TestPodsThatNeedNoRightsOnTheirNodeHaveNone(t *testing.T) {
	privileged := []string{"longhorn-manager", "longhorn-csi-plugin"}
	_, job := uninstaller(t)
	pods := []corev1.PodSpec{job.Spec.Template.Spec}
	for _, d := range ofKind[appsv1.DaemonSet](t, "DaemonSet") {
		pods = append(pods, d.Spec.Template.Spec)
	}
	for _, d := range ofKind[appsv1.Deployment](t, "Deployment") {
		pods = append(pods, d.Spec.Template.Spec)
	}
	seen := 0
	for _, pod := range pods {
		for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
			if slices.Contains(privileged, c.Name) {
				continue
			}
			seen++
			assert.Equal(t, &corev1.SecurityContext{
				AllowPrivilegeEscalation: ptr.To(false),
				ReadOnlyRootFilesystem:   ptr.To(true),
				Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			}, c.SecurityContext, "container %s", c.Name)
			for _, v := range pod.Volumes {
				assert.Nil(t, v.HostPath, "container %s, volume %s", c.Name, v.Name)
			}
		}
	}
	assert.Equal(t, 2, seen)
}
