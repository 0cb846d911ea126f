package uninstall

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// usersOfVolumes waits for the pods that use volumes. A volume that is deleted is lost for them: a share stops although
// pods have it mounted, and the instance managers are removed under the others. This also holds without a manager,
// because instance managers serve volumes without one.
//
//	the pod is       its kubelet answers                                     its kubelet does not answer
//	in deletion      waits, if the CSI driver is there to unmount volumes    waits for Patience
//	not in deletion  waits                                                   waits: a user must delete the workload
func usersOfVolumes(s State, p *Plan) {
	for _, v := range s.of(volumes) {
		var names []string
		for _, pod := range s.Users[v.Name] {
			if s.isAwaited(pod) {
				names = append(names, s.podText(pod))
			}
		}
		if len(names) > 0 {
			p.Waits = append(p.Waits, fmt.Sprintf("pods %s, which use %s", firstNames(names), s.volumeText(v.Name)))
		}
	}
}

// isAwaited reports whether the removal waits for a pod that uses a volume.
func (s State) isAwaited(pod Object) bool {
	return !pod.isDeleted() || !s.isStuck(pod) && s.canUnmount(pod.Node)
}

// canUnmount reports whether a CSI plugin runs on a node, or may start there.
func (s State) canUnmount(node string) bool {
	return s.isInstalled(types.AppCSIPlugin) || slices.ContainsFunc(s.of(pods), func(o Object) bool {
		return o.Labels[types.LabelApp] == types.AppCSIPlugin && o.Node == node && o.Ready && !o.isDeleted()
	})
}

// isInstalled reports whether a DaemonSet exists and is not being deleted.
func (s State) isInstalled(daemonSet string) bool {
	return slices.ContainsFunc(s.of(daemonSets), func(d Object) bool { return d.Name == daemonSet && !d.isDeleted() })
}

// podText names a pod, and its node if that is the reason why the pod does not end.
func (s State) podText(pod Object) string {
	name := pod.Namespace + "/" + pod.Name
	if s.silence(pod.Node) > 0 {
		name += " (node " + pod.Node + " does not answer)"
	}
	return name
}

// volumeText names a volume by its claim, if it has one: "volume default/data (pvc-1)".
func (s State) volumeText(name string) string {
	for _, pv := range s.of(persistentVolumes) {
		if pv.Volume == name && pv.Claim != "" {
			return fmt.Sprintf("volume %s/%s (%s)", pv.ClaimNamespace, pv.Claim, name)
		}
	}
	return "volume " + name
}

// podsPerList limits one answer of the API server.
const podsPerList = 500

// findUsers finds the pods that use volumes, through the bound claims of the PersistentVolumes. Without the right to
// read pods nothing may be removed: the plan would delete volumes in use.
func (o Options) findUsers(ctx context.Context, s *State) error {
	s.Users = map[string][]Object{}
	byClaim := s.volumesByClaim()
	if len(byClaim) == 0 {
		return nil
	}
	opts := metav1.ListOptions{Limit: podsPerList}
	for {
		list, err := o.Client.Resource(pods.GroupVersionResource).List(ctx, opts)
		switch {
		case apierrors.IsForbidden(err):
			return &RefusedError{fmt.Sprintf("the account may not list the pods of all namespaces, so it cannot see which volumes are in use (%v). "+
				"Give it the rights of the ClusterRole in deploy/uninstall.yaml", err)}
		case err != nil:
			return fmt.Errorf("list pods: %w", err)
		}
		for i := range list.Items {
			s.addUser(&list.Items[i], byClaim)
		}
		if opts.Continue = list.GetContinue(); opts.Continue == "" {
			break
		}
	}
	for _, users := range s.Users {
		slices.SortFunc(users, func(a, b Object) int {
			return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
		})
	}
	return nil
}

// volumesByClaim returns the existing volumes by their claims, as <namespace>/<name>. A PersistentVolume that is
// Released or Failed still names its former claim. Another volume may have a claim of this name now.
func (s State) volumesByClaim() map[string][]string {
	exists := map[string]bool{}
	for _, v := range s.of(volumes) {
		exists[v.Name] = true
	}
	byClaim := map[string][]string{}
	for _, pv := range s.of(persistentVolumes) {
		if pv.Claim != "" && pv.Phase != "Released" && pv.Phase != "Failed" && exists[pv.Volume] {
			claim := pv.ClaimNamespace + "/" + pv.Claim
			byClaim[claim] = append(byClaim[claim], pv.Volume)
		}
	}
	return byClaim
}

// addUser adds a pod to the users of its volumes.
func (s *State) addUser(pod *unstructured.Unstructured, byClaim map[string][]string) {
	for _, claim := range claimsOf(pod) {
		for _, volume := range byClaim[pod.GetNamespace()+"/"+claim] {
			s.Users[volume] = append(s.Users[volume], objectOf(pod))
		}
	}
}

// claimsOf returns the claims that a pod may have mounted: none if it is on no node, or if it has terminated. The claim
// of a generic ephemeral volume is named after the pod and the volume.
func claimsOf(pod *unstructured.Unstructured) (claims []string) {
	phase, _, _ := unstructured.NestedString(pod.Object, "status", "phase")
	node, _, _ := unstructured.NestedString(pod.Object, "spec", "nodeName")
	if node == "" || phase == "Succeeded" || phase == "Failed" {
		return nil
	}
	field, _, _ := unstructured.NestedFieldNoCopy(pod.Object, "spec", "volumes")
	list, _ := field.([]any)
	for _, v := range list {
		volume, _ := v.(map[string]any)
		if _, isEphemeral := volume["ephemeral"]; isEphemeral {
			claims = append(claims, fmt.Sprintf("%s-%s", pod.GetName(), volume["name"]))
		} else if name, _, _ := unstructured.NestedString(volume, "persistentVolumeClaim", "claimName"); name != "" {
			claims = append(claims, name)
		}
	}
	return claims
}
