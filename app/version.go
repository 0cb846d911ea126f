package app

import (
	"cmp"
	"context"
	"runtime/debug"

	"github.com/urfave/cli/v3"

	"github.com/longhorn-lep/longhorn-manager/app/inspect"
)

func versionCommand() *cli.Command {
	return &cli.Command{
		Name: "version", Usage: "versions of this program, of the cluster, and of the daemon and the data plane on each node",
		Flags:  append(clusterFlags(), &cli.BoolFlag{Name: "client", Usage: "only the version of this program; the cluster is not contacted"}, outputFlag()),
		Action: showVersions,
	}
}

// showVersions prints what it could read, also if reading the rest has failed.
func showVersions(ctx context.Context, c *cli.Command) error {
	versions, err := inspect.Versions{Client: ownVersion()}, error(nil)
	if !c.Bool("client") {
		var cluster inspect.Cluster
		if cluster, _, err = clusterOf(c); err == nil {
			versions, err = cluster.Versions(ctx, versions.Client)
		}
	}
	if c.String("output") == outputJSON {
		return cmp.Or(writeJSON(c.Root().Writer, versions), err)
	}
	printerOf(c).Versions(versions)
	return err
}

// ownVersion returns the version of this program. A program that was built with go build has the version that Go
// recorded, if any.
func ownVersion() string {
	if info, ok := debug.ReadBuildInfo(); Version == inspect.UnknownVersion && ok && info.Main.Version != "(devel)" {
		return cmp.Or(info.Main.Version, Version)
	}
	return Version
}
