package explain

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// userPod returns the pod that uses claims and has a name, given as namespace/name; nil: no such pod exists.
func (s *Snapshot) userPod(name string) *corev1.Pod {
	for _, pod := range s.UserPods {
		if pod.Namespace+"/"+pod.Name == name {
			return pod
		}
	}
	return nil
}

// claimsOf returns the names of the claims that a pod uses, in the pod's order, each once.
func claimsOf(pod *corev1.Pod) []string {
	var claims []string
	for _, v := range pod.Spec.Volumes {
		claim := ""
		switch {
		case v.PersistentVolumeClaim != nil:
			claim = v.PersistentVolumeClaim.ClaimName
		case v.Ephemeral != nil:
			claim = pod.Name + "-" + v.Name
		}
		if claim != "" && !slices.Contains(claims, claim) {
			claims = append(claims, claim)
		}
	}
	return claims
}

// Pod explains the claims that a pod uses, like Claim, and the pod itself as far as it waits for them. Causes come
// first. It returns an error if no pod of this name uses a claim.
func Pod(s *Snapshot, namespace, name string) ([]Finding, error) {
	pod := s.userPod(namespace + "/" + name)
	if pod == nil {
		if !s.sees(ResourceUserPods) {
			return nil, fmt.Errorf("pod %q: your account may not read pods in namespace %s", namespace+"/"+name, namespace)
		}
		return nil, fmt.Errorf("no pod %q exists that uses a claim", namespace+"/"+name)
	}
	o, p := Object{Kind: KindPod, Name: namespace + "/" + name, Node: pod.Spec.NodeName}, s.place("podns", namespace, "userpod", name)
	var found []Finding
	for _, claim := range claimsOf(pod) {
		c := s.claim(namespace, claim)
		if c == nil && s.sees(ResourceClaims) {
			found = append(found, Finding{
				o, Broken, "ClaimMissing", fmt.Sprintf("pod %s/%s uses claim %s/%s, which does not exist", namespace, name, namespace, claim), nil,
				p.steps([]Step{{"Create the claim, or correct the name in the pod", "kubectl -n {podns} get pvc"}}),
			})
		}
		if c != nil {
			found = append(found, slices.DeleteFunc(ofChain(s, c, s.pvOf(c)), func(f Finding) bool { return f.Object.Kind == KindPod && f.Object.Name != o.Name })...)
		}
	}
	return causesFirst(s, found), nil
}
