package inspect

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/longhorn-lep/longhorn-manager/explain"
	longhornfake "github.com/longhorn-lep/longhorn-manager/k8s/client/clientset/versioned/fake"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// forbidIn refuses lists in all namespaces except one.
func forbidIn(allowed string) clienttesting.ReactionFunc {
	return func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetNamespace() == allowed {
			return false, nil, nil
		}
		return true, nil, apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no"))
	}
}

// freshInstallation has only the DaemonSet.
func freshInstallation(t *testing.T, kube *kubefake.Clientset, namespace string) {
	t.Helper()
	set := &appsv1.DaemonSet{}
	set.Namespace, set.Name = namespace, types.AppManager
	set.Labels = map[string]string{types.LabelApp: types.AppManager, types.InstallationLabel: "lep"}
	if err := kube.Tracker().Add(set); err != nil {
		t.Fatal(err)
	}
}

func TestANamespaceWithoutAnInstallationIsAnError(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(c *Cluster, ours *longhornfake.Clientset, kube *kubefake.Clientset)
		want   string
	}{
		{
			"the installation is in another namespace → it is named", func(*Cluster, *longhornfake.Clientset, *kubefake.Clientset) {},
			`no installation is in namespace "wrong"; namespace longhorn-system has one: use -n longhorn-system`,
		},
		{"there is none anywhere → no other is offered", func(c *Cluster, _ *longhornfake.Clientset, _ *kubefake.Clientset) {
			c.Longhorn = longhornfake.NewSimpleClientset()
		}, `no installation is in namespace "wrong"`},
		{"other namespaces may not be read → the usual one is tried", func(_ *Cluster, ours *longhornfake.Clientset, kube *kubefake.Clientset) {
			for _, may := range []*clienttesting.Fake{&ours.Fake, &kube.Fake} {
				may.PrependReactor("list", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
					if action.GetNamespace() == "wrong" || action.GetNamespace() == types.Namespace {
						return false, nil, nil
					}
					return true, nil, apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no"))
				})
			}
		}, `no installation is in namespace "wrong"; namespace longhorn-system has one: use -n longhorn-system`},
		{"DaemonSets may not be read → they are named, and absence is not claimed", func(c *Cluster, _ *longhornfake.Clientset, kube *kubefake.Clientset) {
			c.Longhorn = longhornfake.NewSimpleClientset()
			kube.PrependReactor("list", "daemonsets", refuse(apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no"))))
		}, `no installation is visible in namespace "wrong": your account may not read daemonsets there`},
		{"only the driver may be seen → so", func(c *Cluster, _ *longhornfake.Clientset, kube *kubefake.Clientset) {
			c.Longhorn = longhornfake.NewSimpleClientset()
			kube.PrependReactor("list", "daemonsets", refuse(apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no"))))
			driver := &storagev1.CSIDriver{}
			driver.Name, driver.Labels = types.DriverName, map[string]string{types.InstallationLabel: "lep"}
			_ = kube.Tracker().Add(driver)
		}, `no installation is visible in namespace "wrong": your account may not read daemonsets there; CSIDriver driver.longhorn.io exists, so an installation is in a namespace that your account may not read`},
		{"nothing may be read there → the rights, and where one is", func(_ *Cluster, ours *longhornfake.Clientset, kube *kubefake.Clientset) {
			ours.PrependReactor("list", "*", forbidIn(types.Namespace))
			kube.PrependReactor("list", "*", forbidIn(types.Namespace))
		}, `your account may not list volumes.longhorn.io in namespace wrong: request the rights get and list on longhorn.io there, or name another --namespace; namespace longhorn-system has one: use -n longhorn-system`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, ours, kube := cluster()
			c.Namespace = "wrong"
			tc.change(&c, ours, kube)
			s, err := c.Snapshot(t.Context())
			if err == nil || err.Error() != tc.want {
				t.Errorf("it says %v of %+v,\nwant %s", err, s, tc.want)
			}
			if missing := new(NotInstalled); !errors.As(c.CheckInstalled(t.Context()), &missing) || missing.Namespace != "wrong" {
				t.Error("the check finds an installation")
			}
		})
	}
}

func TestAnInstallationIsFoundByWhatItHas(t *testing.T) {
	c, _, kube := cluster()
	if err := c.CheckInstalled(t.Context()); err != nil {
		t.Errorf("with nodes and volumes: %v", err)
	}
	c.Longhorn = longhornfake.NewSimpleClientset()
	freshInstallation(t, kube, types.Namespace)
	if err := c.CheckInstalled(t.Context()); err != nil {
		t.Errorf("with its DaemonSet alone: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	kube.PrependReactor("list", "daemonsets", refuse(ctx.Err()))
	if err := c.CheckInstalled(ctx); err == nil || !strings.Contains(err.Error(), "list daemonsets") || errors.As(err, new(*NotInstalled)) {
		t.Errorf("where the API server does not answer: %v", err)
	}
}

func TestAnInstallationWithoutNodesIsNotWell(t *testing.T) {
	c, _, kube := cluster()
	c.Longhorn = longhornfake.NewSimpleClientset()
	freshInstallation(t, kube, types.Namespace)
	s, err := c.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(StatusOf(s).Findings, func(f explain.Finding) bool { return f.Reason == "NoNodes" && f.Severity == explain.Broken }) {
		t.Errorf("it says %+v", StatusOf(s).Findings)
	}
}

func TestAllIsWellOnlyWhereAllWasRead(t *testing.T) {
	for _, tc := range []struct {
		unseen []string
		want   string
	}{
		{nil, "No problems found.\n"},
		{[]string{explain.ResourceEvents}, "No problems found in the objects that your account may read.\nYour account may not read events: problems that only these show are not listed.\n"},
	} {
		var out strings.Builder
		Printer{&out, DefaultWidth}.Status(Status{Unseen: tc.unseen})
		if !strings.HasSuffix(out.String(), tc.want) {
			t.Errorf("without %v it says %q, want %q at its end", tc.unseen, out.String(), tc.want)
		}
	}
}

func TestCopiesThatCannotBeCountedAreUnknown(t *testing.T) {
	for _, resource := range []string{"engines", "replicas"} {
		c, ours, _ := cluster()
		ours.PrependReactor("list", resource, refuse(apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no"))))
		s, err := c.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		status := StatusOf(s)
		var out strings.Builder
		Printer{&out, DefaultWidth}.Status(status)
		if status.Volumes[0].GoodCopies != nil || !strings.Contains(out.String(), "?/2") {
			t.Errorf("without %s it says %v:\n%s", resource, status.Volumes[0].GoodCopies, out.String())
		}
	}
}
