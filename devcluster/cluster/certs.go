package cluster

import (
	"fmt"
	"net"
	"os"
	"time"

	"github.com/longhorn-lep/longhorn-manager/devcluster/config"
	"github.com/longhorn-lep/longhorn-manager/devcluster/pki"
)

// identities returns the control plane's certificates. Kubernetes has bound roles to their users and groups.
func identities() map[string]pki.Request {
	return map[string]pki.Request{
		"apiserver": {
			CommonName: "kube-apiserver",
			Hosts:      []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc." + config.Domain},
			IPs:        []net.IP{net.ParseIP(config.PlaneIP), net.ParseIP(config.APIServiceIP), net.IPv4(127, 0, 0, 1)},
		},
		"apiserver-kubelet-client": {CommonName: "kube-apiserver-kubelet-client", Groups: []string{"system:masters"}},
		"admin":                    {CommonName: "admin", Groups: []string{"system:masters"}},
		"controller-manager":       {CommonName: "system:kube-controller-manager"},
		"scheduler":                {CommonName: "system:kube-scheduler"},
		"kube-proxy":               {CommonName: "system:kube-proxy"},
		"coredns":                  {CommonName: "system:coredns"},
	}
}

// makeCertificates writes the authority, the control plane's certificates and the kubeconfigs of the programs that use
// the API server.
func (c *Cluster) makeCertificates() error {
	for _, dir := range []string{c.path("pki"), c.path("conf")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("make %s: %w", dir, err)
		}
	}
	authority, err := pki.NewAuthority("devcluster-"+c.Name, time.Now())
	if err != nil {
		return err
	}
	if err := c.writePair("ca", authority.Pair); err != nil {
		return err
	}
	tokens, err := pki.NewKeyPair()
	if err != nil {
		return err
	}
	if err := c.writePair("service-accounts", tokens); err != nil {
		return err
	}
	for name, request := range identities() {
		pair, err := authority.Issue(request)
		if err != nil {
			return err
		}
		if err := c.writePair(name, pair); err != nil {
			return err
		}
	}
	for _, name := range []string{"controller-manager", "scheduler", "coredns"} {
		if err := c.writeKubeconfig(c.path("conf", name+".kubeconfig"), config.APIURL(), name); err != nil {
			return err
		}
	}
	return c.writeKubeconfig(c.Kubeconfig(), fmt.Sprintf("https://127.0.0.1:%d", c.state.APIPort), "admin")
}

func (c *Cluster) writeKubeconfig(path, server, identity string) error {
	content := config.Kubeconfig(server, c.pki("ca.crt"), c.pki(identity+".crt"), c.pki(identity+".key"))
	return writeFile(path, content)
}

func (c *Cluster) writePair(name string, p pki.Pair) error {
	if err := writeFile(c.pki(name+".crt"), string(p.Cert)); err != nil {
		return err
	}
	return writeFile(c.pki(name+".key"), string(p.Key))
}

func (c *Cluster) authority() (*pki.Authority, error) {
	cert, err := os.ReadFile(c.pki("ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("read authority: %w", err)
	}
	key, err := os.ReadFile(c.pki("ca.key"))
	if err != nil {
		return nil, fmt.Errorf("read authority: %w", err)
	}
	return pki.LoadAuthority(pki.Pair{Cert: cert, Key: key}, time.Now())
}

// writeFile writes both secrets and configuration: only root can read them.
func writeFile(path, content string) error {
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		return fmt.Errorf("write configuration: %w", err)
	}
	return nil
}
