package app

import (
	"context"
	"errors"

	"github.com/urfave/cli/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/metadata"

	"github.com/longhorn-lep/longhorn-manager/app/inspect"
	"github.com/longhorn-lep/longhorn-manager/explain"
)

func preflightCommand() *cli.Command {
	return &cli.Command{
		Name: "preflight", Usage: "the requirements that the cluster and its nodes do not meet, also before an installation",
		Flags: append(clusterFlags(), outputFlag()), Action: runPreflight,
	}
}

func runPreflight(ctx context.Context, c *cli.Command) error {
	cluster, config, err := clusterOf(c)
	if err != nil {
		return err
	}
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return err
	}
	result, err := cluster.Preflight(ctx, examineForeign(ctx, client, cluster.Namespace))
	if err != nil {
		return err
	}
	if c.String("output") == outputJSON {
		if err := writeJSON(c.Root().Writer, result); err != nil {
			return err
		}
	} else {
		printerOf(c).Preflight(result)
	}
	if result.IsBroken() {
		return cli.Exit("this cluster cannot serve volumes on all nodes in its present state", exitUnhealthy)
	}
	return nil
}

// examineForeign searches for another Longhorn, as a daemon does when it starts.
func examineForeign(ctx context.Context, client metadata.Interface, namespace string) inspect.Check {
	check := inspect.Check{Name: "OtherLonghorn"}
	switch err := checkForeign(ctx, client, namespace); {
	case errors.Is(err, errForeign):
		check.Severity, check.Message = explain.Broken, err.Error()
		check.Next = []explain.Step{{Text: "Copy its data to other storage, then uninstall it", Command: "kubectl get crd -o name | grep longhorn.io"}}
	case err != nil && !apierrors.IsNotFound(err): // without the kinds of Longhorn nothing is installed
		check.Severity, check.Message = explain.Warning, "it is unknown whether another Longhorn is installed: "+err.Error()
		check.Next = []explain.Step{{Text: "Request the right list on customresourcedefinitions, or see whether there are some of longhorn.io", Command: "kubectl get crd"}}
	default:
		check.Message = "no other Longhorn is installed"
	}
	return check
}
