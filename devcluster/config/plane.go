package config

import "fmt"

// PlaneFiles are the paths of files that the control plane's programs use.
type PlaneFiles struct {
	EtcdDir     string
	PKI         string // directory of NAME.crt and NAME.key
	Kubeconfigs string // directory of NAME.kubeconfig
	AuditPolicy string
	AuditLog    string
	Corefile    string
}

// NodeMonitorGrace is how long a node may be silent before it is NotReady. Leases are renewed every 2.5 s (a quarter of
// their 10 s).
const NodeMonitorGrace = "10s"

// EtcdArgs returns the arguments of etcd.
func EtcdArgs(f PlaneFiles) []string {
	return []string{"--data-dir=" + f.EtcdDir}
}

// APIServerArgs returns the arguments of kube-apiserver. Admission plugins are the default ones. The API server calls
// webhooks at the addresses of their pods, because the control plane has no kube-proxy.
func APIServerArgs(f PlaneFiles) []string {
	pki := func(name string) string { return f.PKI + "/" + name }
	return []string{
		"--etcd-servers=http://127.0.0.1:2379",
		"--advertise-address=" + PlaneIP,
		fmt.Sprintf("--secure-port=%d", APIPort),
		"--service-cluster-ip-range=" + ServiceCIDR,
		"--allow-privileged=true",
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--enable-aggregator-routing=true",
		"--client-ca-file=" + pki("ca.crt"),
		"--tls-cert-file=" + pki("apiserver.crt"),
		"--tls-private-key-file=" + pki("apiserver.key"),
		"--kubelet-certificate-authority=" + pki("ca.crt"),
		"--kubelet-client-certificate=" + pki("apiserver-kubelet-client.crt"),
		"--kubelet-client-key=" + pki("apiserver-kubelet-client.key"),
		"--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer=https://kubernetes.default.svc." + Domain,
		"--service-account-key-file=" + pki("service-accounts.crt"),
		"--service-account-signing-key-file=" + pki("service-accounts.key"),
		"--audit-policy-file=" + f.AuditPolicy,
		"--audit-log-path=" + f.AuditLog,
		"--audit-log-maxsize=1024",
		"--audit-log-maxbackup=1",
	}
}

// ControllerManagerArgs returns the arguments of kube-controller-manager. Pod ranges are not allocated, because each
// node has a fixed one.
func ControllerManagerArgs(f PlaneFiles) []string {
	return []string{
		"--kubeconfig=" + f.Kubeconfigs + "/controller-manager.kubeconfig",
		"--authentication-kubeconfig=" + f.Kubeconfigs + "/controller-manager.kubeconfig",
		"--authorization-kubeconfig=" + f.Kubeconfigs + "/controller-manager.kubeconfig",
		"--bind-address=127.0.0.1",
		"--leader-elect=false",
		"--use-service-account-credentials=true",
		"--root-ca-file=" + f.PKI + "/ca.crt",
		"--service-account-private-key-file=" + f.PKI + "/service-accounts.key",
		"--cluster-signing-cert-file=" + f.PKI + "/ca.crt",
		"--cluster-signing-key-file=" + f.PKI + "/ca.key",
		"--allocate-node-cidrs=false",
		"--node-monitor-grace-period=" + NodeMonitorGrace,
		"--node-monitor-period=1s",
	}
}

// SchedulerArgs returns the arguments of kube-scheduler.
func SchedulerArgs(f PlaneFiles) []string {
	kubeconfig := f.Kubeconfigs + "/scheduler.kubeconfig"
	return []string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1",
		"--leader-elect=false",
	}
}

// AuditPolicy logs every request once, without its body.
const AuditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
`

// Corefile returns the configuration that makes CoreDNS answer for services from the API server. It forwards nothing,
// because no other DNS server can be reached.
func Corefile(f PlaneFiles) string {
	return fmt.Sprintf(`.:53 {
    errors
    kubernetes %s in-addr.arpa ip6.arpa {
        kubeconfig %s/coredns.kubeconfig default
        ttl 5
    }
    cache 5
}
`, Domain, f.Kubeconfigs)
}

// Kubeconfig returns a kubeconfig for a client that accesses the API server with the identity in a certificate.
// Certificates are referenced by path.
func Kubeconfig(server, ca, cert, key string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: default
clusters:
- name: default
  cluster:
    server: %s
    certificate-authority: %s
users:
- name: default
  user:
    client-certificate: %s
    client-key: %s
contexts:
- name: default
  context:
    cluster: default
    user: default
`, server, ca, cert, key)
}

// Objects returns the objects of every cluster that has nodes: the service under which pods find DNS, and the role of
// CoreDNS.
func Objects() string {
	return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata:
  name: kube-dns
  namespace: kube-system
  labels: {k8s-app: kube-dns}
spec:
  clusterIP: %s
  ports:
  - {name: dns, protocol: UDP, port: 53}
  - {name: dns-tcp, protocol: TCP, port: 53}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: kube-dns
  namespace: kube-system
  labels: {kubernetes.io/service-name: kube-dns}
addressType: IPv4
endpoints:
- addresses: [%q]
ports:
- {name: dns, protocol: UDP, port: 53}
- {name: dns-tcp, protocol: TCP, port: 53}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: "system:coredns"}
rules:
- apiGroups: [""]
  resources: [endpoints, services, pods, namespaces]
  verbs: [list, watch]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [list, watch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: "system:coredns"}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:coredns"}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: "system:coredns"}
`, DNSServiceIP, PlaneIP)
}
