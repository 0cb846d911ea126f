package explain

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// Claim explains a PersistentVolumeClaim. It says why the claim waits, or describes the problems of its
// PersistentVolume, of the volume behind it (engine, copies, share and nodes), and of the pods that use it. Causes
// come first. It returns an error if the claim does not exist.
func Claim(s *Snapshot, namespace, name string) ([]Finding, error) {
	c := s.claim(namespace, name)
	if c == nil {
		return nil, notThere(s, KindClaim, namespace+"/"+name, ResourceClaims, nil)
	}
	return causesFirst(s, ofChain(s, c, s.pvOf(c))), nil
}

// PersistentVolume explains a PersistentVolume together with the claim that is bound to it, or alone if no claim is
// bound to it. It returns an error if it does not exist.
func PersistentVolume(s *Snapshot, name string) ([]Finding, error) {
	pv := named(s.PersistentVolumes, name)
	if pv == nil {
		return nil, notThere(s, KindPV, name, ResourcePVs, names(slices.DeleteFunc(slices.Clone(s.PersistentVolumes), func(pv *corev1.PersistentVolume) bool { return !isOurs(pv) })))
	}
	if !isOurs(pv) {
		return []Finding{{
			Object{Kind: KindPV, Name: name},
			Info, "OtherDriver", "PersistentVolume " + name + " belongs to another driver", nil,
			place{"pv": name}.steps([]Step{{"See its driver", "kubectl describe pv {pv}"}}),
		}}, nil
	}
	return causesFirst(s, ofChain(s, s.claimOf(pv), pv)), nil
}

// claimOf returns the claim that is bound to a PersistentVolume; nil: there is none.
func (s *Snapshot) claimOf(pv *corev1.PersistentVolume) *corev1.PersistentVolumeClaim {
	if pv == nil || pv.Spec.ClaimRef == nil {
		return nil
	}
	c := s.claim(pv.Spec.ClaimRef.Namespace, pv.Spec.ClaimRef.Name)
	if c == nil || c.Spec.VolumeName != pv.Name {
		return nil
	}
	return c
}

// ofChain explains everything that a claim and its PersistentVolume depend on, from the volume to the pods. Either
// may be nil.
func ofChain(s *Snapshot, c *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) []Finding {
	var found []Finding
	v := volumeOf(s, pv)
	if v == nil && pv == nil && c != nil && c.Spec.VolumeName == "" && c.UID != "" {
		v = named(s.Volumes, "pvc-"+string(c.UID)) // the name that the provisioner assigns
	}
	if v != nil {
		found = append(ofVolume(s, v), ofUsedNodes(s, v, waitingOn(s, c))...)
	}
	if pv != nil {
		found = append(found, ofPV(s, pv)...)
	}
	if c != nil {
		found = append(found, ofClaim(s, c)...)
		found = append(found, notOurs(s, c, pv)...)
		found = append(found, ofUsers(s, c, pv)...)
	}
	return found
}

// claim returns the claim with a name; nil: there is none.
func (s *Snapshot) claim(namespace, name string) *corev1.PersistentVolumeClaim {
	for _, c := range s.Claims {
		if c.Namespace == namespace && c.Name == name {
			return c
		}
	}
	return nil
}

// causesFirst moves problems that make a claim unusable before the pods that wait for the claim, and other problems
// behind them.
func causesFirst(s *Snapshot, list []Finding) []Finding {
	place := func(f Finding) int {
		switch {
		case f.Object.Kind == KindPod && f.Severity != Info:
			return 1
		case f.Severity == Broken, f.Severity == Warning && (f.Object.Kind == KindTicket || f.Object.Kind == KindShareManager):
			return 0
		case f.Severity == Warning:
			return 2
		}
		return 3
	}
	list = sorted(s, list)
	slices.SortStableFunc(list, func(a, b Finding) int { return cmp.Compare(place(a), place(b)) })
	return list
}

func claimPlace(s *Snapshot, c *corev1.PersistentVolumeClaim) place {
	class := ""
	if c.Spec.StorageClassName != nil {
		class = *c.Spec.StorageClassName
	}
	return s.place("name", c.Name, "claimns", c.Namespace, "claim", c.Namespace+"/"+c.Name, "class", class, "pv", c.Spec.VolumeName)
}

// ofClaim explains a claim itself. It does not explain a claim of another driver.
func ofClaim(s *Snapshot, c *corev1.PersistentVolumeClaim) []Finding {
	if c.Spec.VolumeName == "" {
		return ofPending(s, c)
	}
	return ofBound(s, c)
}

// claimFinding creates findings about one claim.
type claimFinding struct {
	o Object
	p place
}

func about(s *Snapshot, c *corev1.PersistentVolumeClaim) claimFinding {
	return claimFinding{Object{Kind: KindClaim, Name: c.Namespace + "/" + c.Name}, claimPlace(s, c)}
}

func (a claimFinding) say(severity Severity, reason, what string, why []string, next ...Step) Finding {
	return Finding{a.o, severity, reason, a.p.fill(what), why, a.p.steps(next)}
}

var describeClaim = Step{"See the claim and its Events", "kubectl -n {claimns} describe pvc {name}"}

// ofPending explains a claim that has no PersistentVolume yet.
func ofPending(s *Snapshot, c *corev1.PersistentVolumeClaim) []Finding {
	class := classOf(s, c)
	if c.Spec.StorageClassName == nil || *c.Spec.StorageClassName == "" || class == nil && !s.sees(ResourceClasses) || class != nil && class.Provisioner != types.DriverName {
		return nil
	}
	a := about(s, c)
	last := lastEvent(s, referenceOf(c), func(e *corev1.Event) bool { return e.Reason != eventIgnoredParameters })
	switch {
	case c.DeletionTimestamp != nil:
		return []Finding{deletingClaim(s, c)}
	case class == nil:
		return []Finding{a.say(Broken, "ClaimPending", "claim {claim} names a StorageClass that does not exist", nil, Step{"Create the class, or create the claim again with another class", "kubectl get storageclass"})}
	case awaitsPod(c, class) && len(usersOf(s, c)) == 0:
		return []Finding{a.say(Info, "ClaimPending", "claim {claim} waits for its volume",
			[]string{"its class has volumeBindingMode WaitForFirstConsumer: the volume is created when a pod uses the claim"}, Step{"Use the claim in a pod", describeClaim.Command})}
	}
	message := ""
	if last != nil {
		message = plainMessage(last.Message)
	}
	if f, lacks := tooLarge(s, c, class, a); lacks && namedParameter(message, class) == "" {
		return []Finding{f}
	}
	if awaitsPod(c, class) {
		return []Finding{a.say(Warning, "ClaimPending", "claim {claim} waits until its pod has a node", podsWithoutNode(s, c), Step{"See why no node fits the pod", describeClaim.Command})}
	}
	if last != nil {
		what := "claim {claim} waits for its volume, which cannot be created"
		if parameter := namedParameter(message, class); parameter != "" {
			what = "claim {claim} waits for its volume: parameter " + parameter + " of StorageClass {class} is refused"
		}
		return []Finding{a.say(Warning, "ClaimPending", what, []string{last.Reason + ": " + message}, refusedSteps(message, class)...)}
	}
	return append(controllerMissing(s), a.say(Warning, "ClaimPending", "claim {claim} waits for its volume", nil,
		Step{"See whether the pods that create volumes run", "kubectl -n {ns} get pods -l app=" + types.AppCSIController}))
}

// podsWithoutNode returns the reasons why pods that use a claim have no node.
func podsWithoutNode(s *Snapshot, c *corev1.PersistentVolumeClaim) []string {
	var why []string
	for _, pod := range usersOf(s, c) {
		if trouble := podTrouble(pod); pod.Spec.NodeName == "" && trouble != "" {
			why = append(why, trouble)
		}
	}
	return why
}

// refusedSteps returns the steps for a message that says why no volume is created for a claim of a class.
func refusedSteps(message string, class *storagev1.StorageClass) []Step {
	const again = "parameters of a StorageClass cannot be changed, so delete the StorageClass and create it again; the claim is retried automatically"
	see := "kubectl get storageclass {class} -o yaml"
	if namedParameter(message, class) != "" {
		return []Step{{"Correct the parameter: " + again, see}}
	}
	return []Step{
		{"If the lines above name a parameter, correct it: " + again, see},
		{"If the lines above name a field of the claim, delete the claim and create it again; otherwise it is retried automatically", describeClaim.Command},
	}
}

// namedParameter returns the parameter of a class that a message refuses; "": it refuses none.
func namedParameter(message string, class *storagev1.StorageClass) string {
	for _, key := range slices.Sorted(maps.Keys(class.Parameters)) {
		if strings.Contains(message, "parameter "+key+":") {
			return key
		}
	}
	return ""
}

// controllerMissing reports that no pod that creates volumes is ready.
func controllerMissing(s *Snapshot) []Finding {
	if !s.sees(ResourcePods) {
		return nil
	}
	var why []string
	for _, pod := range s.Pods {
		if pod.Labels[types.LabelApp] != types.AppCSIController {
			continue
		}
		if isPodReady(pod) {
			return nil
		}
		why = append(why, strings.TrimSpace("pod "+pod.Name+" is not ready; "+podTrouble(pod)))
	}
	return []Finding{{
		Object{Kind: KindInstallation, Name: s.Namespace},
		Broken, "NoCSIController", "no pod that creates and attaches volumes is ready: claims and pods wait", why,
		s.place().steps([]Step{{"See why the pods do not run", "kubectl -n {ns} describe pods -l app=" + types.AppCSIController}}),
	}}
}

func isPodReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// notOurs explains why a requested claim does not concern this product, or why that cannot be determined.
func notOurs(s *Snapshot, c *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) []Finding {
	a, class := about(s, c), classOf(s, c)
	switch {
	case pv != nil && (pv.Spec.CSI == nil || pv.Spec.CSI.Driver != types.DriverName):
		return []Finding{a.say(Info, "OtherDriver", "claim {claim} has a volume of another driver", nil, Step{"See its PersistentVolume", "kubectl describe pv {pv}"})}
	case pv != nil || c.Spec.VolumeName != "":
		return nil
	case class != nil && class.Provisioner != types.DriverName:
		return []Finding{a.say(Info, "OtherDriver", "claim {claim} has StorageClass {class}, whose provisioner is "+class.Provisioner, nil, Step{"See that driver's Events and logs", describeClaim.Command})}
	case c.Spec.StorageClassName == nil:
		return []Finding{a.say(Warning, "ClaimPending", "claim {claim} names no StorageClass, and there was no default when it was created", nil,
			Step{"Mark a class as the default, or create the claim again with a class", "kubectl get storageclass"})}
	case *c.Spec.StorageClassName == "":
		return []Finding{a.say(Info, "ClaimPending", "claim {claim} has an empty storageClassName: it waits until a user creates a PersistentVolume for it", nil,
			Step{"Create the PersistentVolume, or create the claim again with a class", "kubectl get pv; kubectl get storageclass"})}
	case class == nil && !s.sees(ResourceClasses):
		return []Finding{a.say(Info, "ClaimPending", "claim {claim} waits for its volume", nil, describeClaim)}
	}
	return nil
}

func classOf(s *Snapshot, c *corev1.PersistentVolumeClaim) *storagev1.StorageClass {
	if c.Spec.StorageClassName == nil {
		return nil
	}
	return named(s.Classes, *c.Spec.StorageClassName)
}

func referenceOf(c *corev1.PersistentVolumeClaim) corev1.ObjectReference {
	return corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: c.Namespace, Name: c.Name, UID: c.UID}
}

// awaitsPod reports whether the claim waits for its first pod, as its class specifies.
func awaitsPod(c *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) bool {
	mode := class.VolumeBindingMode
	return mode != nil && *mode == storagev1.VolumeBindingWaitForFirstConsumer && c.Annotations["volume.kubernetes.io/selected-node"] == ""
}

// deletingClaim explains why a deleted claim still exists.
func deletingClaim(s *Snapshot, c *corev1.PersistentVolumeClaim) Finding {
	why := finalizers(c.Finalizers)
	for _, pod := range usersOf(s, c) {
		why = append(why, fmt.Sprintf("pod %s uses it", pod.Name))
	}
	return about(s, c).say(Info, "Deleting", "claim {claim} is being deleted", why, Step{"Delete the pods that use it", describeClaim.Command})
}
