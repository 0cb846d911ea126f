package components

import (
	"os"

	_ "k8s.io/client-go/plugin/pkg/client/auth" // credential plugins of kubeconfigs
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	kubectl "k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
)

func runKubectl() int {
	// kubectl needs the log level before its command exists.
	_, _ = logs.GlogSetter(kubectl.GetLogVerbosity(os.Args))
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err) // prints it and exits
	}
	return 0
}
