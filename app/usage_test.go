package app

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/longhorn-lep/longhorn-manager/explain"
)

func TestUnknownArgumentsAreRefusedWithAHint(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"statsu"}, `command "statsu" is not known; did you mean "status"?`},
		{[]string{"frobnicate"}, `command "frobnicate" is not known; there are status, explain, snapshot, ui, doctor, preflight, support-bundle, version, completion`},
		{[]string{"explain", "volum", "v"}, `explain: "volum" is not known; did you mean "volume"?`},
		{[]string{"explain", "storageclass", "x"}, `explain: "storageclass" is not known; there are volume, node, disk, claim, pv, pod, snapshot, setting`},
		{[]string{"explain", "stetings", "x"}, `explain: "stetings" is not known; did you mean "settings"?`},
		{[]string{"status", "extra"}, `status takes no arguments; it got "extra"`},
		{[]string{"doctor", "n1"}, `doctor takes no arguments; it got "n1"`},
		{[]string{"support-bundle", "a", "b"}, `support-bundle takes no arguments; it got "a b"`},
		{[]string{"status", "-A"}, "status: flag -A is not known; there are --kubeconfig, --context, --namespace, --output, --help"},
		{[]string{"status", "--outptu", "json"}, `status: flag --outptu is not known; did you mean "--output"?`},
		{[]string{"explain", "volume", "v", "--namespce=x"}, `volume: flag --namespce is not known; did you mean "--namespace"?`},
		{[]string{"-n", "shop", "status"}, "flag -n must follow the command, as in: kubectl longhorn status -n VALUE"},
		{[]string{"--context", "x", "status"}, "flag --context must follow the command, as in: kubectl longhorn status --context VALUE"},
		{[]string{"--frob"}, "flag --frob is not known; there are --help, --version"},
		{[]string{"explain", "volume", "v", "w"}, "explain volume takes one argument, NAME; it got 2"},
	} {
		out, err := runPlugin(t, tc.args...)
		if err == nil || err.Error() != tc.want || out != "" {
			t.Errorf("%q gives %v and prints %q, want %q", tc.args, err, out, tc.want)
		}
	}
}

func TestAnUnknownCommandIsAnErrorLikeAnyOther(t *testing.T) {
	for _, args := range [][]string{{"kubectl-longhorn", "statsu"}, {"kubectl-longhorn", "explain", "x"}, {"longhorn-manager", "daemno"}, {"longhorn-manager", "status", "extra"}, {"kubectl-longhorn", "help", "statsu"}} {
		if code := Main(args); code != 1 {
			t.Errorf("%q exits with %d, want 1", args, code)
		}
	}
}

func TestWithoutACommandHelpIsShown(t *testing.T) {
	for want, args := range map[string][]string{"support-bundle": nil, "setting": {"explain", "--help"}} {
		if out, err := runPlugin(t, args...); err != nil || !strings.Contains(out, want) {
			t.Errorf("%q gives %v and prints %q", args, err, out)
		}
	}
}

func TestKindsAreKnownByKubectlsWords(t *testing.T) {
	config := emptyCluster(t)
	for _, kind := range []string{
		"volume", "volumes", "lhv", "volumes.longhorn.io", "node", "nodes", "no", "lhn", "disk", "disks", "claim", "claims", "pvc", "pvcs", "persistentvolumeclaim",
		"pv", "pvs", "persistentvolume", "pod", "pods", "po", "setting", "settings", "lhs",
	} {
		if _, err := runPlugin(t, "explain", kind, "shop/data", "--kubeconfig", config); err == nil || !strings.HasPrefix(err.Error(), "no installation is in namespace") {
			t.Errorf("explain %s gives %v", kind, err)
		}
	}
}

func TestAClaimWithoutItsNamespaceIsOfferedWithIt(t *testing.T) {
	s := &explain.Snapshot{}
	for _, namespace := range []string{"shop", "bar"} {
		c := &corev1.PersistentVolumeClaim{}
		c.Namespace, c.Name = namespace, "data"
		s.Claims = append(s.Claims, c)
	}
	for name, want := range map[string]string{
		"data":  `claim "data" must be NAMESPACE/NAME; did you mean: explain claim bar/data, or: explain claim shop/data`,
		"other": `claim "other" must be NAMESPACE/NAME`,
	} {
		if _, err := findClaim(s, name); err == nil || err.Error() != want {
			t.Errorf("%s gives %v, want %q", name, err, want)
		}
	}
}
