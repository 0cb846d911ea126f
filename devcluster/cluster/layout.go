// Package cluster creates and removes a development cluster: a control plane, nodes, and the network between them. It
// records all that was created, so that a later program finds and clears it. It must not know what is deployed on the
// cluster.
//
// Everything is named after, and is below, one directory:
//
//	DIR/state.json           what exists (processes, nodes, ports)
//	DIR/bin/devcluster       this program, kept while the cluster runs
//	DIR/pki  DIR/conf        certificates; configuration of the control plane
//	DIR/kubeconfig           administrator, by a port on 127.0.0.1
//	DIR/audit.log  DIR/log   the API server's audit log; logs of the control plane
//	DIR/etcd                 database
//	DIR/images               images to load into nodes that are added later
//	DIR/nodes/NAME           disk.img, containerd, kubelet, logs of a node
//	DIR/nodes/NAME/disks     all disks of a guest, a node with a kernel of its own
package cluster

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
)

// Layout derives every name and path of a cluster. Two clusters can exist if both fields differ.
type Layout struct {
	// Dir is the state directory, absolute.
	Dir string
	// Name is the prefix of the names of network namespaces and control groups.
	Name string
}

var validName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?$`)

// NewLayout checks dir and name.
func NewLayout(dir, name string) (Layout, error) {
	if !filepath.IsAbs(dir) || filepath.Clean(dir) == "/" {
		return Layout{}, fmt.Errorf("state directory %q: give an absolute path that is not the root", dir)
	}
	if err := checkName(name); err != nil {
		return Layout{}, err
	}
	return Layout{Dir: filepath.Clean(dir), Name: name}, nil
}

var errBadName = errors.New("a name has lower case letters, digits and dashes, at most 32")

func checkName(name string) error {
	if !validName.MatchString(name) {
		return fmt.Errorf("name %q: %w", name, errBadName)
	}
	return nil
}

func (l Layout) path(parts ...string) string {
	return filepath.Join(append([]string{l.Dir}, parts...)...)
}

// Kubeconfig returns the administrator's kubeconfig, for programs on the real machine.
func (l Layout) Kubeconfig() string { return l.path("kubeconfig") }

// Binary returns the path of the cluster's copy of this program.
func (l Layout) Binary() string { return l.path("bin", "devcluster") }

func (l Layout) stateFile() string            { return l.path("state.json") }
func (l Layout) node(name string) string      { return l.path("nodes", name) }
func (l Layout) pki(file string) string       { return l.path("pki", file) }
func (l Layout) image(file string) string     { return l.path("images", file) }
func (l Layout) routerNetns() string          { return l.Name + "-net" }
func (l Layout) planeNetns() string           { return l.Name + "-plane" }
func (l Layout) nodeNetns(name string) string { return l.Name + "-node-" + name }
func (l Layout) cgroup(name string) string    { return "devcluster-" + l.Name + "/" + name }
func (l Layout) preload() string              { return l.path("bin", "uml-preload.so") }
func (l Layout) cgroupRoot() string           { return "devcluster-" + l.Name }

// port returns the name of the router's end of a link; index 0 is the control plane's.
func port(index int) string { return fmt.Sprintf("port-%d", index) }

// managementPort returns the name of the router's end of the private link of a guest.
func managementPort(index int) string { return fmt.Sprintf("mgmt-%d", index) }

// made returns the entries of Dir that a cluster creates and that down removes.
func (l Layout) made() []string {
	return []string{"bin", "pki", "conf", "kubeconfig", "audit.log", "log", "etcd", "images", "nodes", "kubectl-cache", "state.json.new", "state.json"}
}
