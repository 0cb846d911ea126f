package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/app/inspect"
	"github.com/longhorn-lep/longhorn-manager/explain"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// explainedCluster is the JSON output of the command explain without a name.
type explainedCluster struct {
	About  string          `json:"about"`
	Causes []explain.Cause `json:"causes"`
	Unseen []string        `json:"unseen,omitempty"`
}

// explainCommand explains the cluster, an object by its name, or by its kind and name.
func explainCommand() *cli.Command {
	flags := append(clusterFlags(), outputFlag()) // also of the commands below
	for _, flag := range flags {
		if text, ok := flag.(*cli.StringFlag); ok && text.Name == "namespace" {
			text.Usage += ", or of the claim or pod"
		}
	}
	command := &cli.Command{
		Name: "explain", Usage: "the worst problem of the cluster, or the problems of an object: their causes, and the next steps",
		ArgsUsage: "[NAME]", Flags: flags, Action: explainAny, ShellComplete: completeAny,
		UsageText: pluginName + " explain [options]\n" + pluginName + " explain NAME [options]\n" + pluginName + " explain KIND NAME [options]",
	}
	for _, e := range explainables() {
		command.Commands = append(command.Commands, e.command(e.kind))
		for _, alias := range e.aliases {
			hidden := e.command(alias)
			hidden.Hidden = true // the list of kinds stays short
			command.Commands = append(command.Commands, hidden)
		}
	}
	return command
}

// completeAny prints the kinds, and the names of objects that need no kind.
func completeAny(ctx context.Context, c *cli.Command) {
	if words := c.Args().Slice(); len(words) == 0 || !strings.HasPrefix(words[len(words)-1], "-") {
		listCommands(ctx, c)
	}
	completeNames(func(s *explain.Snapshot) []string {
		return slices.Concat(inspect.NodeNames(s), inspect.VolumeNames(s), inspect.ClaimNames(s))
	})(ctx, c)
}

// explainAny is the action of explain without a kind: it explains the cluster, or the object with a name.
func explainAny(ctx context.Context, c *cli.Command) error {
	switch c.Args().Len() {
	case 0:
		return explainCluster(ctx, c)
	case 1:
		return explainName(ctx, c, c.Args().First())
	}
	kinds, words := kindWords()
	return notKnown(whatFollows(c), c.Args().First(), words, kinds)
}

// kindWords returns the kinds that can be explained, and all words for them.
func kindWords() (kinds, words []string) {
	for _, e := range explainables() {
		kinds = append(kinds, e.kind)
		words = append(append(words, e.kind), e.aliases...)
	}
	return kinds, words
}

func explainCluster(ctx context.Context, c *cli.Command) error {
	s, err := snapshot(ctx, c)
	if err != nil {
		return err
	}
	causes := explain.Causes(s)
	if c.String("output") == outputJSON {
		return writeJSON(c.Root().Writer, explainedCluster{"the cluster", causes, s.Unseen})
	}
	printerOf(c).Causes(s, causes)
	return nil
}

// explainName finds the object with a name, and explains it. The name may be KIND/NAME, as in kubectl.
func explainName(ctx context.Context, c *cli.Command, typed string) error {
	cluster, scope, err := scoped(ctx, c)
	if err != nil {
		return err
	}
	kind, name := splitKind(typed)
	if namespace := namespaceOf(name); kind != "disk" && namespace != "" {
		cluster.ClaimNamespace = namespace
	} else {
		cluster.ClaimNamespace = scope
	}
	s, err := cluster.Snapshot(ctx)
	if err != nil {
		return err
	}
	matches := slices.DeleteFunc(withPods(ctx, cluster, explain.Find(s, scope, name), name), func(m explain.Match) bool {
		return kind != "" && kindWord(m.Kind) != kind
	})
	switch len(matches) {
	case 0:
		return notFound(s, scope, typed, name)
	case 1:
		return explainMatch(ctx, c, cluster, s, matches[0])
	}
	return fmt.Errorf("%q fits %d objects; choose one: %s", typed, len(matches), explain.Choices(pluginCall+" explain", matches))
}

// splitKind splits KIND/NAME, with any word for the kind. Without a kind it returns "" and the whole text. For a part
// of a volume or a node it returns the kind of the whole.
func splitKind(typed string) (kind, name string) {
	word, name, ok := strings.Cut(typed, "/")
	if e, known := explainableOf(word); ok && known {
		return e.kind, name
	}
	if whole := wholes[strings.TrimSuffix(word, groupSuffix)]; ok && whole != "" {
		return whole, name
	}
	return "", typed
}

// groupSuffix follows the kind in the names that kubectl get -o name prints, such as volume.longhorn.io/NAME.
const groupSuffix = "." + longhorn.GroupName

// wholes has the kinds of parts, in kubectl's words, and the kind of object with which explain explains the part. Share
// managers and attachments have the name of their volume.
var wholes = map[string]string{
	"replica": "volume", "replicas": "volume", "lhr": "volume",
	"engine": "volume", "engines": "volume", "lhe": "volume",
	"sharemanager": "volume", "sharemanagers": "volume", "lhsm": "volume",
	"volumeattachment": "volume", "volumeattachments": "volume", "lhva": "volume",
	"instancemanager": "node", "instancemanagers": "node", "lhim": "node",
}

// kindWord returns the command's word for a kind.
func kindWord(k explain.Kind) string {
	word, _, _ := strings.Cut(explain.Match{Kind: k}.Words(), " ")
	return word
}

// explainableOf returns the kind with a word for it, and false if it does not exist.
func explainableOf(word string) (explainable, bool) {
	all := explainables()
	word = strings.TrimSuffix(word, groupSuffix)
	i := slices.IndexFunc(all, func(e explainable) bool { return e.kind == word || slices.Contains(e.aliases, word) })
	if i < 0 {
		return explainable{}, false
	}
	return all[i], true
}

// withPods adds the pods with a name. A snapshot of all namespaces has only pods that have not started.
func withPods(ctx context.Context, cluster inspect.Cluster, matches []explain.Match, name string) []explain.Match {
	if cluster.ClaimNamespace != "" || name == "" {
		return matches
	}
	pods, err := cluster.Kube.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		return matches // the user may not list pods of all namespaces
	}
	for _, pod := range pods.Items {
		m := explain.Match{Kind: explain.KindPod, Name: pod.Namespace + "/" + pod.Name}
		if pod.Name == name && !slices.Contains(matches, m) {
			matches = append(matches, m)
		}
	}
	return matches
}

// notFound returns the error that no object has a name.
func notFound(s *explain.Snapshot, scope, typed, name string) error {
	text := fmt.Sprintf("nothing is named %q", typed)
	_, words := kindWords()
	if similar := explain.Similar(s, scope, name); len(similar) > 0 {
		return fmt.Errorf("%s; did you mean: %s", text, explain.Choices(pluginCall+" explain", similar))
	}
	if nearest := explain.Nearest(typed, words); nearest != "" {
		return fmt.Errorf("%s; did you mean: %s explain %s NAME", text, pluginCall, nearest)
	}
	if len(s.Unseen) > 0 {
		return fmt.Errorf("%s among the objects that your account may read; it may not read %s", text, strings.Join(s.Unseen, ", "))
	}
	return fmt.Errorf("%s; see the names of nodes and volumes with %s status, and claims with kubectl get pvc -A", text, pluginCall)
}

// explainMatch explains an object that was found in a snapshot. For a claim and a pod it reads the pods of their
// namespace first.
func explainMatch(ctx context.Context, c *cli.Command, cluster inspect.Cluster, s *explain.Snapshot, m explain.Match) error {
	e, _ := explainableOf(kindWord(m.Kind))
	if e.namespace != nil && cluster.ClaimNamespace == "" {
		var err error
		cluster.ClaimNamespace = e.namespace(m.Name)
		if s, err = cluster.Snapshot(ctx); err != nil {
			return err
		}
	}
	if m.Kind == explain.KindDisk && m.Node != "" {
		found, err := explain.Disk(s, m.Node, m.Name)
		if err != nil {
			return err
		}
		return show(c, s, m.Words(), found)
	}
	found, err := e.find(s, c, m.Name)
	if err != nil {
		return err
	}
	return show(c, s, m.Words(), found)
}

// show prints findings about an object. about is the kind and the name of the object.
func show(c *cli.Command, s *explain.Snapshot, about string, found []explain.Finding) error {
	if c.String("output") == outputJSON {
		return writeJSON(c.Root().Writer, explained{about, append([]explain.Finding{}, found...), s.Unseen})
	}
	if name, isVolume := strings.CutPrefix(about, string(explain.KindVolume)+" "); isVolume {
		about = s.TitleOf(explain.Object{Kind: explain.KindVolume, Name: name})
	}
	printerOf(c).Findings(s, about, found)
	return nil
}

// scoped returns the cluster, and the namespace of claims and pods that the user named with -n; "" if -n names the
// namespace of the installation. A user of kubectl types the namespace of the claim there.
func scoped(ctx context.Context, c *cli.Command) (cluster inspect.Cluster, scope string, err error) {
	cluster, _, err = clusterOf(c)
	if err != nil || !c.IsSet("namespace") {
		return cluster, "", err
	}
	missing := new(inspect.NotInstalled)
	if err := cluster.CheckInstalled(ctx); !errors.As(err, &missing) {
		return cluster, "", err
	}
	scope, cluster.Namespace = cluster.Namespace, types.Namespace
	if len(missing.Elsewhere) > 0 {
		cluster.Namespace = missing.Elsewhere[0]
	}
	if cluster.Namespace == scope {
		return cluster, "", missing
	}
	return cluster, scope, nil
}
