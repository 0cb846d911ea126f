package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v3"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/longhorn-lep/longhorn-manager/app/inspect"
	"github.com/longhorn-lep/longhorn-manager/explain"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// inspectCommands returns the commands for users in a terminal: longhorn-manager <command>, or kubectl longhorn
// <command>.
func inspectCommands() []*cli.Command {
	return namingServer([]*cli.Command{statusCommand(), explainCommand(), snapshotCommand(), uiCommand(), doctorCommand(), preflightCommand(), bundleCommand(), versionCommand()})
}

// exitUnhealthy is the exit code of doctor if the node cannot serve volumes.
const exitUnhealthy = 2

// Values of the flag --output.
const (
	outputTable = "table"
	outputWide  = "wide" // of status only
	outputJSON  = "json"
)

func outputFlag() cli.Flag {
	return outputFlagOf("table, or json for scripts", outputTable, outputJSON)
}

// outputFlagOf returns the flag --output with the values that a command supports; the first is the default.
func outputFlagOf(usage string, values ...string) cli.Flag {
	return &cli.StringFlag{
		Name: "output", Aliases: []string{"o"}, Value: values[0], Usage: usage,
		Validator: func(text string) error {
			if last := len(values) - 1; !slices.Contains(values, text) {
				return fmt.Errorf("--output: %q must be %s or %s", text, strings.Join(values[:last], ", "), values[last])
			}
			return nil
		},
	}
}

// clusterFlags select the cluster and the user.
func clusterFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "kubeconfig", Usage: "file with clusters and users; by default $KUBECONFIG, ~/.kube/config, or in a pod its service account"},
		&cli.StringFlag{Name: "context", Usage: "context in that file, instead of the current context"},
		&cli.StringFlag{Name: "namespace", Aliases: []string{"n"}, Value: types.Namespace, Usage: "namespace of the installation"},
	}
}

func statusCommand() *cli.Command {
	return &cli.Command{
		Name: "status", Usage: "nodes, volumes, and problems",
		Flags: append(clusterFlags(), outputFlagOf("table; wide, which has the names of volumes besides their claims; or json for scripts", outputTable, outputWide, outputJSON)),
		Action: func(ctx context.Context, c *cli.Command) error {
			s, err := snapshot(ctx, c)
			if err != nil {
				return err
			}
			status := inspect.StatusOf(s)
			switch c.String("output") {
			case outputJSON:
				return writeJSON(c.Root().Writer, status)
			case outputWide:
				printerOf(c).WideStatus(status)
			default:
				printerOf(c).Status(status)
			}
			return nil
		},
	}
}

// explained is the JSON output of the command explain.
type explained struct {
	About    string            `json:"about"`
	Findings []explain.Finding `json:"findings"`
	Unseen   []string          `json:"unseen,omitempty"`
}

// explainable is a kind of object that the command explain supports.
type explainable struct {
	kind string
	// aliases are kubectl's words for the kind.
	aliases         []string
	argument, usage string
	// namespace returns the only namespace from which claims must be read; "": all namespaces.
	namespace func(name string) string
	find      func(s *explain.Snapshot, c *cli.Command, name string) ([]explain.Finding, error)
	names     func(*explain.Snapshot) []string
	flags     []cli.Flag
}

// explainables returns all kinds. find is called with the only argument of the command.
func explainables() []explainable {
	plain := func(find func(*explain.Snapshot, string) ([]explain.Finding, error)) func(*explain.Snapshot, *cli.Command, string) ([]explain.Finding, error) {
		return func(s *explain.Snapshot, _ *cli.Command, name string) ([]explain.Finding, error) {
			return find(s, name)
		}
	}
	return []explainable{
		{
			kind: "volume", aliases: []string{"volumes", "lhv", "volumes.longhorn.io", "volume.longhorn.io"}, argument: "NAME", usage: "a volume, with its engine, replicas, share and tickets",
			find: plain(findVolume), names: inspect.VolumeNames,
		},
		{
			kind: "node", aliases: []string{"nodes", "no", "lhn", "nodes.longhorn.io", "node.longhorn.io"}, argument: "NAME", usage: "a node, with its disks and data plane",
			find: plain(explain.Node), names: inspect.NodeNames,
		},
		{
			kind: "disk", aliases: []string{"disks"}, argument: "NAME", usage: "a disk, on all nodes that have a disk with that name",
			find: func(s *explain.Snapshot, c *cli.Command, name string) ([]explain.Finding, error) {
				return explain.Disk(s, c.String("node"), name)
			}, names: inspect.DiskNames, flags: []cli.Flag{&cli.StringFlag{Name: "node", Usage: "only the disk of this node"}},
		},
		{
			kind: "claim", aliases: []string{"claims", "pvc", "pvcs", "persistentvolumeclaim", "persistentvolumeclaims"}, argument: "NAMESPACE/NAME",
			usage: "a PersistentVolumeClaim, with its volume and the pods that use it", namespace: namespaceOf,
			find: plain(findClaim), names: inspect.ClaimNames,
		},
		{
			kind: "pv", aliases: []string{"pvs", "persistentvolume", "persistentvolumes"}, argument: "NAME", usage: "a PersistentVolume, with its volume and its claim",
			find: plain(explain.PersistentVolume), names: inspect.PersistentVolumeNames,
		},
		{
			kind: "pod", aliases: []string{"pods", "po"}, argument: "NAMESPACE/NAME", usage: "a pod that uses claims, with the claims and their volumes",
			namespace: namespaceOf, find: plain(findPod), names: inspect.PodNames,
		},
		{
			kind: "snapshot", aliases: []string{"snapshots", "lhsnap", "snapshots.longhorn.io", "snapshot.longhorn.io"}, argument: "NAME", usage: "a snapshot of a volume, with its volume",
			find: plain(explain.TakenSnapshot), names: inspect.SnapshotNames,
		},
		{
			kind: "setting", aliases: []string{"settings", "lhs", "settings.longhorn.io", "setting.longhorn.io"}, argument: "NAME", usage: "a setting",
			find: plain(explain.Setting), names: inspect.SettingNames,
		},
	}
}

// namespaceOf returns the namespace of a claim or a pod NAMESPACE/NAME; "": it has none.
func namespaceOf(name string) string {
	namespace, _, ok := strings.Cut(name, "/")
	if !ok {
		return ""
	}
	return namespace
}

// findVolume explains a volume. status lists a volume by its claim, so NAMESPACE/NAME of the claim means the volume.
func findVolume(s *explain.Snapshot, name string) ([]explain.Finding, error) {
	if strings.Contains(name, "/") {
		for _, v := range s.Volumes {
			if s.ClaimOf(v.Name) == name {
				return explain.Volume(s, v.Name)
			}
		}
	}
	return explain.Volume(s, name)
}

func findClaim(s *explain.Snapshot, name string) ([]explain.Finding, error) {
	namespace, claim, ok := strings.Cut(name, "/")
	if ok {
		return explain.Claim(s, namespace, claim)
	}
	err := fmt.Errorf("claim %q must be NAMESPACE/NAME", name)
	if lines := explain.ClaimsNamed(s, name); len(lines) > 0 {
		err = fmt.Errorf("%w; did you mean: %s", err, strings.Join(lines, ", or: "))
	}
	return nil, err
}

func findPod(s *explain.Snapshot, name string) ([]explain.Finding, error) {
	namespace, pod, ok := strings.Cut(name, "/")
	if !ok {
		return nil, fmt.Errorf("pod %q must be NAMESPACE/NAME, or name its namespace with -n", name)
	}
	return explain.Pod(s, namespace, pod)
}

// command returns the command that explains objects of the kind, with a word for it. It has the flags of explain, too.
func (e explainable) command(word string) *cli.Command {
	return &cli.Command{
		Name: word, Usage: e.usage, ArgsUsage: e.argument, Flags: e.flags,
		ShellComplete: completeNames(e.names), Action: e.run,
	}
}

func (e explainable) run(ctx context.Context, c *cli.Command) error {
	if c.Args().Len() == 0 {
		return e.lacksName(ctx, c)
	}
	if c.Args().Len() != 1 {
		return fmt.Errorf("explain %s takes one argument, %s; it got %d", e.kind, e.argument, c.Args().Len())
	}
	cluster, name, err := e.cluster(ctx, c, c.Args().First())
	if err != nil {
		return err
	}
	s, err := cluster.Snapshot(ctx)
	if err != nil {
		return err
	}
	found, err := e.find(s, c, name)
	if err != nil {
		return err
	}
	return show(c, s, e.kind+" "+name, found)
}

// mostNames is the largest number of names in a message.
const mostNames = 20

// lacksName returns the error about a kind without a name. It has the names of the objects.
func (e explainable) lacksName(ctx context.Context, c *cli.Command) error {
	err := fmt.Errorf("explain %s needs a name: explain %s %s", e.kind, e.kind, e.argument)
	s, reading := snapshot(ctx, c)
	if reading != nil {
		return fmt.Errorf("%w (the names could not be read: %w)", err, reading)
	}
	names := e.names(s)
	if len(names) == 0 {
		return fmt.Errorf("%w; no object of this kind exists", err)
	}
	more := ""
	if n := len(names) - mostNames; n > 0 {
		names, more = names[:mostNames], fmt.Sprintf(", and %d more", n)
	}
	return fmt.Errorf("%w; there are %s%s", err, strings.Join(names, ", "), more)
}

// cluster returns the cluster from which to read what explains an object, and the whole name of the object: a claim or
// a pod may have its namespace in -n.
func (e explainable) cluster(ctx context.Context, c *cli.Command, name string) (inspect.Cluster, string, error) {
	if e.namespace == nil {
		cluster, _, err := clusterOf(c)
		return cluster, name, err
	}
	if e.namespace(name) != "" {
		cluster, _, err := clusterOf(c)
		cluster.ClaimNamespace = e.namespace(name)
		return cluster, name, err
	}
	cluster, scope, err := scoped(ctx, c)
	if scope != "" {
		cluster.ClaimNamespace, name = scope, scope+"/"+name
	}
	return cluster, name, err
}

func doctorCommand() *cli.Command {
	return &cli.Command{
		Name: "doctor", Usage: "the requirements that this node does not meet; run it as root on the node, or in the daemon's pod there",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "node-id", Usage: "name of this node, for messages", Sources: cli.EnvVars("NODE_NAME"), Value: "localhost"},
			&cli.StringFlag{Name: "namespace", Aliases: []string{"n"}, Value: types.Namespace, Usage: "namespace of the present or future installation"},
			&cli.StringFlag{Name: "host-root", Usage: "path of the node's root directory; by default /host if it is one, else /"},
			&cli.StringFlag{Name: "path", Value: defaultDataPath(), Usage: "directory that should become a disk"},
			outputFlag(),
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			namespace, err := doctorNamespace(c.String("namespace"), c.IsSet("namespace"), podNamespace())
			if err != nil {
				return err
			}
			root := c.String("host-root")
			if root == "" {
				root = hostRoot()
			}
			checks := inspect.Examine(inspect.LookAtNode(ctx, c.String("node-id"), namespace, root, c.String("path")))
			if c.String("output") == outputJSON {
				if err := writeJSON(c.Root().Writer, checks); err != nil {
					return err
				}
			} else {
				printerOf(c).Checks(checks)
			}
			if inspect.IsBroken(checks) {
				return cli.Exit("this node cannot serve volumes in its present state", exitUnhealthy)
			}
			return nil
		},
	}
}

// podNamespaceFile contains the namespace of the pod in which this process runs. The file is missing on the node
// itself.
const podNamespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// podNamespace returns the namespace of the pod in which this process runs; "" on the node itself.
func podNamespace() string {
	text, err := os.ReadFile(podNamespaceFile)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// doctorNamespace returns the namespace for the commands that doctor prints. In a pod of the installation it is the
// pod's namespace. On the node itself any namespace is accepted, because doctor does not contact the API server.
func doctorNamespace(asked string, isSet bool, pod string) (string, error) {
	switch {
	case pod == "":
		return asked, nil
	case isSet && asked != pod:
		return "", fmt.Errorf("namespace %q is not the namespace of the installation of this pod, which is %s; omit -n", asked, pod)
	}
	return pod, nil
}

func defaultDataPath() string {
	d, _ := settings.DefinitionOf(settings.DefaultDataPath)
	return d.Default
}

// hostRoot returns the path of the node's root directory: its mount path in the daemon's pod, or / on the node
// itself.
func hostRoot() string {
	if _, err := os.Stat("/host/proc/1"); err == nil {
		return "/host"
	}
	return "/"
}

func bundleCommand() *cli.Command {
	return &cli.Command{
		Name: "support-bundle", Usage: "a tar.gz of all objects, Events, pods and logs of this product; no Secrets, no tokens",
		Flags: append(clusterFlags(),
			&cli.StringFlag{Name: "file", Aliases: []string{"f"}, Usage: "file to create; by default longhorn-support-<time>.tar.gz in the current directory. It must not exist"},
			&cli.Int64Flag{Name: "log-bytes", Value: 10 << 20, Usage: "number of bytes to take from the end of each container's log", Validator: func(n int64) error {
				if n < 1 {
					return fmt.Errorf("--log-bytes is %d: it must be at least 1", n)
				}
				return nil
			}}),
		Action: writeBundle,
	}
}

func writeBundle(ctx context.Context, c *cli.Command) (err error) {
	cluster, config, err := clusterOf(c)
	if err != nil {
		return err
	}
	// Other errors do not stop the command: a bundle is most needed when the API server does not answer well.
	if missing := new(inspect.NotInstalled); errors.As(cluster.CheckInstalled(ctx), &missing) {
		return missing
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	path := c.String("file")
	if path == "" {
		path = "longhorn-support-" + cluster.Clock.Now().UTC().Format("20060102-150405") + ".tar.gz"
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("--file: %w", err)
	}
	defer func() {
		if err = errors.Join(err, file.Close()); err != nil {
			err = errors.Join(err, os.Remove(path))
		}
	}()
	missing, err := inspect.WriteBundle(ctx, file, inspect.BundleOptions{Cluster: cluster, Dynamic: client, Version: Version, LogBytes: c.Int64("log-bytes")})
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	fmt.Fprintf(c.Root().Writer, "%s was created, without Secrets and tokens; check its content before you share it\n", filepath.Clean(path))
	if len(missing) > 0 {
		fmt.Fprintf(c.Root().Writer, "%d items could not be read (errors.txt), the first: %s\n", len(missing), missing[0])
	}
	return nil
}

// snapshot reads the cluster that the flags name.
func snapshot(ctx context.Context, c *cli.Command) (*explain.Snapshot, error) {
	cluster, _, err := clusterOf(c)
	if err != nil {
		return nil, err
	}
	return cluster.Snapshot(ctx)
}

// requestTimeout limits the time of one request to the API server. Reading the log of a container is one request.
const requestTimeout = time.Minute

// clusterOf creates the clients for the user in the kubeconfig, whose rights apply.
func clusterOf(c *cli.Command) (inspect.Cluster, *rest.Config, error) {
	config, err := userConfig(c.String("kubeconfig"), c.String("context"))
	if err != nil {
		return inspect.Cluster{}, nil, err
	}
	config.QPS, config.Burst, config.Timeout = 50, 100, requestTimeout
	config.WarningHandler = rest.NoWarnings{}
	clients, err := clientsOf(config)
	if err != nil {
		return inspect.Cluster{}, nil, err
	}
	return inspect.Cluster{Kube: clients.kube, Longhorn: clients.longhorn, Namespace: c.String("namespace"), Clock: clock.RealClock{}}, config, nil
}

func writeJSON(out io.Writer, value any) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}
