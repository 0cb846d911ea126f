package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/longhorn-lep/longhorn-manager/devcluster/cluster"
	"github.com/longhorn-lep/longhorn-manager/devcluster/image"
)

func loadImageCommand() *cli.Command {
	return &cli.Command{
		Name:      "load-image",
		Usage:     "load docker-archives into all nodes",
		ArgsUsage: "TAR...",
		Action: withCluster(func(ctx context.Context, cmd *cli.Command, c *cluster.Cluster) error {
			if cmd.Args().Len() == 0 {
				return errors.New("load-image takes one or more archives")
			}
			return c.LoadImages(ctx, cmd.Args().Slice())
		}),
	}
}

func outputFlag(required bool) cli.Flag {
	return &cli.StringFlag{Name: "output", Aliases: []string{"o"}, Required: required, Usage: "file to write the docker-archive to"}
}

func imageCommand() *cli.Command {
	return &cli.Command{
		Name:  "image",
		Usage: "make an image from files, without a registry",
		Flags: []cli.Flag{
			outputFlag(true),
			&cli.StringFlag{Name: "name", Required: true, Usage: "full name, as in localhost/x:dev"},
			&cli.StringFlag{Name: "base-tar", Usage: "root file system to begin with, a plain tar"},
			&cli.StringSliceFlag{Name: "add", Usage: "LOCAL:PATH, a file or directory to add; may be repeated"},
			&cli.StringSliceFlag{Name: "entrypoint", Usage: "program and arguments; repeat for each"},
			&cli.StringSliceFlag{Name: "env", Usage: "NAME=VALUE; may be repeated"},
		},
		Action: func(_ context.Context, cmd *cli.Command) error {
			l := image.NewLayer()
			for _, add := range cmd.StringSlice("add") {
				local, inside, ok := strings.Cut(add, ":")
				if !ok {
					return fmt.Errorf("add %q: give LOCAL:PATH", add)
				}
				if err := l.File(inside, local); err != nil {
					return err
				}
			}
			c := image.Config{Name: cmd.String("name"), Entrypoint: cmd.StringSlice("entrypoint"), Env: cmd.StringSlice("env")}
			return image.Build(cmd.String("output"), c, cmd.String("base-tar"), l)
		},
	}
}

func workloadImageCommand() *cli.Command {
	return &cli.Command{
		Name:  "workload-image",
		Usage: "make " + image.WorkloadName + ": fio, busybox, bash, checksum and file system tools of this machine",
		Flags: []cli.Flag{
			outputFlag(false),
			&cli.StringSliceFlag{Name: "program", Usage: "one more program of this machine; may be repeated"},
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			out := cmd.String("output")
			if out == "" {
				out = filepath.Join(cmd.String("cache"), "workload.tar")
				if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
					return fmt.Errorf("make cache directory: %w", err)
				}
			}
			if err := image.BuildWorkload(ctx, out, cmd.StringSlice("program")); err != nil {
				return err
			}
			fmt.Println(out)
			return nil
		},
	}
}
