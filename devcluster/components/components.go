// Package components links the programs of a Kubernetes cluster (the API server with its etcd, the controllers, the
// scheduler, kubelet, kube-proxy, kubectl and CoreDNS) into one program. It runs one of them per process, with the
// flags that the original program has. It must not know which flags the cluster uses.
package components

import (
	"context"
	"fmt"
	"os"
	"sort"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // the components' --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // their client metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // their version metric
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	kubeproxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// byName has the main function of each component. It reads os.Args and returns the exit code.
var byName = map[string]func() int{
	"etcd":                    runEtcd,
	"coredns":                 runCoreDNS,
	"kubectl":                 runKubectl,
	"kube-apiserver":          cobraMain(apiserver.NewAPIServerCommand),
	"kube-controller-manager": cobraMain(controllermanager.NewControllerManagerCommand),
	"kube-scheduler":          cobraMain(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
	"kube-proxy":              cobraMain(kubeproxy.NewProxyCommand),
	"kubelet":                 cobraMain(func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) }),
}

// Run runs the named component with args and returns its exit code. It takes over the whole process: os.Args, signals
// and the default flag set.
func Run(name string, args []string) int {
	run, ok := byName[name]
	if !ok {
		fmt.Fprintf(os.Stderr, "no component %q; there are %v\n", name, Names())
		return 2
	}
	os.Args = append([]string{name}, args...)
	return run()
}

// Names lists the components.
func Names() []string {
	names := make([]string, 0, len(byName))
	for name := range byName {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

func cobraMain(newCommand func() *cobra.Command) func() int {
	return func() int { return cli.Run(newCommand()) }
}
