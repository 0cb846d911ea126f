package config

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"
)

func TestAddressesOfNodes(t *testing.T) {
	for index, want := range map[int][2]string{
		1:        {"172.30.1.1", "10.244.1.0/24"},
		MaxNodes: {"172.30.1.250", "10.244.250.0/24"},
	} {
		assert.Equal(t, want[0], NodeIP(index).String(), "node %d", index)
		assert.Equal(t, want[1], NodePods(index).String(), "node %d", index)
	}
}

// The strict decoder refuses a misspelled field, as the kubelet does.
func TestKubeletConfigurationIsTheKubeletsOwn(t *testing.T) {
	var c kubeletv1beta1.KubeletConfiguration
	require.NoError(t, yaml.UnmarshalStrict([]byte(Node{Name: "node-2", Index: 2}.Kubelet()), &c))
	require.NotNil(t, c.FailCgroupV1)
	assert.False(t, *c.FailCgroupV1)
	assert.Equal(t, "cgroupfs", c.CgroupDriver, "must accept cgroup v1 with the cgroupfs driver")
	assert.Equal(t, []string{"10.96.0.10"}, c.ClusterDNS)
	assert.Equal(t, "cluster.local", c.ClusterDomain)
	for _, signal := range []string{"nodefs.available", "nodefs.inodesFree", "imagefs.available"} {
		assert.Equal(t, "0%", c.EvictionHard[signal], "%s: the kubelet takes 0%% as \"never\"", signal)
	}
}

func TestPodNetworkNamesTheNodesRange(t *testing.T) {
	var c struct {
		Plugins []struct {
			Type string
			IPAM struct{ Ranges [][]struct{ Subnet string } }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(Node{Name: "b", Index: 7}.PodNetwork()), &c))
	assert.Equal(t, "ptp", c.Plugins[0].Type)
	assert.Equal(t, "10.244.7.0/24", c.Plugins[0].IPAM.Ranges[0][0].Subnet)
}

func TestKubeconfigParses(t *testing.T) {
	c, err := clientcmd.Load([]byte(Kubeconfig("https://127.0.0.1:1", "/ca", "/cert", "/key")))
	require.NoError(t, err)
	assert.Equal(t, "https://127.0.0.1:1", c.Clusters["default"].Server)
	got := c.AuthInfos["default"]
	assert.Equal(t, "/cert", got.ClientCertificate)
	assert.Equal(t, "/key", got.ClientKey)
}

func TestArguments(t *testing.T) {
	f := PlaneFiles{EtcdDir: "/e", PKI: "/p", Kubeconfigs: "/k", AuditPolicy: "/a.yaml", AuditLog: "/a.log", Corefile: "/c"}
	n := Node{Name: "node-2", Index: 2}
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"logs and exec → kubelets by address":      {APIServerArgs(f), "--kubelet-preferred-address-types=InternalIP"},
		"audit → its file":                         {APIServerArgs(f), "--audit-log-path=/a.log"},
		"pods → not on a loopback API server":      {APIServerArgs(f), "--advertise-address=172.30.0.1"},
		"silent node → not ready after 10 s":       {ControllerManagerArgs(f), "--node-monitor-grace-period=10s"},
		"scheduler → its identity":                 {SchedulerArgs(f), "--kubeconfig=/k/scheduler.kubeconfig"},
		"kubelet → the node's address":             {n.KubeletArgs(), "--node-ip=172.30.1.2"},
		"kube-proxy → tracking limits not touched": {n.ProxyArgs(), "--conntrack-max-per-core=0"},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Contains(t, c.args, c.want)
		})
	}
	assert.Contains(t, Corefile(f), "kubeconfig /k/coredns.kubeconfig default", "Corefile lacks the identity")
}

func TestObjectsAreYAMLDocumentsWithKinds(t *testing.T) {
	var kinds []string
	for doc := range strings.SplitSeq(Objects(), "\n---\n") {
		var o struct{ Kind string }
		require.NoError(t, yaml.Unmarshal([]byte(doc), &o))
		kinds = append(kinds, o.Kind)
	}
	want := []string{"Service", "EndpointSlice", "ClusterRole", "ClusterRoleBinding"}
	assert.Equal(t, want, kinds)
}
