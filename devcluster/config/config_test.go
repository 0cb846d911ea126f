package config

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"
)

func TestAddressesOfNodes(t *testing.T) {
	for index, want := range map[int][2]string{
		1:        {"172.30.1.1", "10.244.1.0/24"},
		MaxNodes: {"172.30.1.250", "10.244.250.0/24"},
	} {
		if got := NodeIP(index).String(); got != want[0] {
			t.Errorf("node %d has address %s, want %s", index, got, want[0])
		}
		if got := NodePods(index).String(); got != want[1] {
			t.Errorf("node %d has pods in %s, want %s", index, got, want[1])
		}
	}
}

// The strict decoder refuses a misspelt field, which the kubelet would too.
func TestKubeletConfigurationIsTheKubeletsOwn(t *testing.T) {
	var c kubeletv1beta1.KubeletConfiguration
	if err := yaml.UnmarshalStrict([]byte(Node{Name: "node-2", Index: 2}.Kubelet()), &c); err != nil {
		t.Fatal(err)
	}
	if c.FailCgroupV1 == nil || *c.FailCgroupV1 || c.CgroupDriver != "cgroupfs" {
		t.Error("must accept cgroup v1 with the cgroupfs driver")
	}
	if !slices.Equal(c.ClusterDNS, []string{"10.96.0.10"}) || c.ClusterDomain != "cluster.local" {
		t.Errorf("DNS %v, domain %s", c.ClusterDNS, c.ClusterDomain)
	}
	if c.EvictionHard["nodefs.available"] != "1%" {
		t.Errorf("eviction %v", c.EvictionHard)
	}
}

func TestPodNetworkNamesTheNodesRange(t *testing.T) {
	var c struct {
		Plugins []struct {
			Type string
			IPAM struct{ Ranges [][]struct{ Subnet string } }
		}
	}
	if err := json.Unmarshal([]byte(Node{Name: "b", Index: 7}.PodNetwork()), &c); err != nil {
		t.Fatal(err)
	}
	if c.Plugins[0].Type != "ptp" || c.Plugins[0].IPAM.Ranges[0][0].Subnet != "10.244.7.0/24" {
		t.Errorf("got %+v", c)
	}
}

func TestKubeconfigParses(t *testing.T) {
	c, err := clientcmd.Load([]byte(Kubeconfig("https://127.0.0.1:1", "/ca", "/cert", "/key")))
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Clusters["default"].Server; got != "https://127.0.0.1:1" {
		t.Errorf("server %q", got)
	}
	if got := c.AuthInfos["default"]; got.ClientCertificate != "/cert" || got.ClientKey != "/key" {
		t.Errorf("user %+v", got)
	}
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
			if !slices.Contains(c.args, c.want) {
				t.Errorf("%v lacks %s", c.args, c.want)
			}
		})
	}
	if got := Corefile(f); !strings.Contains(got, "kubeconfig /k/coredns.kubeconfig default") {
		t.Errorf("Corefile lacks the identity: %s", got)
	}
}

func TestObjectsAreYAMLDocumentsWithKinds(t *testing.T) {
	var kinds []string
	for doc := range strings.SplitSeq(Objects(), "\n---\n") {
		var o struct{ Kind string }
		if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, o.Kind)
	}
	if want := []string{"Service", "EndpointSlice", "ClusterRole", "ClusterRoleBinding"}; !slices.Equal(kinds, want) {
		t.Errorf("kinds %v, want %v", kinds, want)
	}
}
