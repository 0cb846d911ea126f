package uninstall

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	kubetypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/clock"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// Options specify what is removed.
type Options struct {
	Client    dynamic.Interface
	Clock     clock.Clock
	Namespace string
	// DeleteVolumes is a confirmation like the setting deleting-confirmation-flag.
	DeleteVolumes bool
	// Out receives the progress, one line for each step.
	Out io.Writer
	// Every is the pause between two rounds.
	Every time.Duration
	// Patience is how long deleted replicas and pods wait for their node if it does not answer, and how long a
	// deleted replica waits for its disk. A node that answers but has no daemon gets at least DefaultPatience.
	Patience time.Duration
}

// DefaultPatience is enough time for a node to restart, or to start its daemon.
const DefaultPatience = 3 * time.Minute

// RefusedError says why the run stops, and which objects it had removed before.
type RefusedError struct{ Reason string }

// Error returns why.
func (e *RefusedError) Error() string { return e.Reason }

// Run removes the installation. It returns when nothing is left of it, when ctx ends, or with a RefusedError. A
// failed round is repeated, for example if the API server does not answer.
func Run(ctx context.Context, o Options) error {
	lastWaiting := ""
	var removed []string
	for {
		p, err := round(ctx, o)
		removed = append(removed, p.Removed...)
		switch {
		case errors.As(err, new(*RefusedError)):
			return err
		case err != nil:
			fmt.Fprintf(o.Out, "retrying: %v\n", err)
		case p.Refused != "":
			return &RefusedError{p.Refused + ". " + alreadyRemoved(removed)}
		case p.Done:
			fmt.Fprintln(o.Out, "nothing is left of the installation")
			if p.Stays != "" {
				fmt.Fprintln(o.Out, p.Stays)
			}
			return nil
		case len(p.Actions) == 0:
			if now := waiting(p); now != lastWaiting {
				lastWaiting = now
				fmt.Fprintln(o.Out, now)
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("uninstall: %w; run it again to continue", context.Cause(ctx))
		case <-o.Clock.After(o.Every):
		}
	}
}

func waiting(p Plan) string {
	return strings.TrimSuffix(p.Stage+": waiting for the removal of"+listed(p.Waits, ""), "\n")
}

// round observes, plans, and acts once. Before it removes finalizers, it reads all objects a second time.
func round(ctx context.Context, o Options) (Plan, error) {
	s, err := observe(ctx, o)
	if err != nil {
		return Plan{}, err
	}
	p := plan(s)
	var again *Plan
	for _, a := range p.Actions {
		if a.Verb == Strip && again == nil {
			s, err := observe(ctx, o)
			if err != nil {
				return p, err
			}
			second := plan(s)
			again = &second
		}
		if a.Verb == Strip && !again.strips(a) {
			return p, fmt.Errorf("%s %s must keep its finalizer for now", a.Kind.Resource, a.Name)
		}
		if err := perform(ctx, o, a); err != nil {
			return p, fmt.Errorf("%s %s %s: %w", a.Verb, a.Kind.Resource, a.Name, err)
		}
		if a.Verb == Delete {
			p.Removed = append(p.Removed, a.Kind.Resource+"/"+a.Name)
		}
		fmt.Fprintf(o.Out, "%s: %s %s %s\n", p.Stage, a.Verb, a.Kind.Resource, a.Name)
		if a.Leaves != "" {
			fmt.Fprintf(o.Out, "%s: %s\n", p.Stage, a.Leaves)
		}
	}
	return p, nil
}

// resource returns the client for the installation's objects of a kind.
func (o Options) resource(k Kind) dynamic.ResourceInterface {
	if k.Namespaced {
		return o.Client.Resource(k.GroupVersionResource).Namespace(o.Namespace)
	}
	return o.Client.Resource(k.GroupVersionResource)
}

// observe reads all kinds. A kind without a definition has no objects.
func observe(ctx context.Context, o Options) (State, error) {
	s := State{
		Namespace: o.Namespace, Forced: o.DeleteVolumes, Now: o.Clock.Now(), Patience: o.Patience,
		Objects: map[Kind][]Object{}, Elsewhere: map[Kind][]Object{},
	}
	for _, k := range readOrder {
		if err := o.list(ctx, k, &s); err != nil {
			return s, err
		}
	}
	for _, k := range unknown(s.of(definitions)) {
		// The account may have rights only for the kinds of this version. Other kinds are removed with their
		// definition.
		if err := o.list(ctx, k, &s); err != nil && !apierrors.IsForbidden(err) {
			return s, err
		}
	}
	return s, o.findUsers(ctx, &s)
}

func (o Options) list(ctx context.Context, k Kind, s *State) error {
	opts := metav1.ListOptions{}
	if k == namespaces {
		opts.FieldSelector = fields.OneTermEqualSelector("metadata.name", o.Namespace).String()
	}
	from := o.resource(k)
	if k.isReadEverywhere() {
		from = o.Client.Resource(k.GroupVersionResource)
	}
	list, err := from.List(ctx, opts)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list %s: %w", k.Resource, err)
	}
	for i := range list.Items {
		found := objectOf(&list.Items[i])
		if k.Namespaced && found.Namespace != o.Namespace {
			s.Elsewhere[k] = append(s.Elsewhere[k], found)
			continue
		}
		s.Objects[k] = append(s.Objects[k], found)
	}
	return nil
}

func objectOf(u *unstructured.Unstructured) Object {
	o := Object{
		Name: u.GetName(), Namespace: u.GetNamespace(), UID: string(u.GetUID()), Labels: u.GetLabels(), Finalizers: u.GetFinalizers(),
	}
	if at := u.GetDeletionTimestamp(); at != nil {
		o.DeletedAt = at.Time
	}
	text := func(path ...string) string {
		s, _, _ := unstructured.NestedString(u.Object, path...)
		return s
	}
	o.Provisioner = cmp.Or(text("spec", "attacher"), text("spec", "csi", "driver"), text("provisioner"))
	o.Volume = cmp.Or(text("spec", "csi", "volumeHandle"), text("spec", "volumeName"))
	o.ClaimNamespace, o.Claim = text("spec", "claimRef", "namespace"), text("spec", "claimRef", "name")
	o.Node, o.Value = text("spec", "nodeID"), text("value")
	if u.GetKind() == "Pod" {
		o.Node = text("spec", "nodeName")
	}
	if made, _, _ := unstructured.NestedBool(u.Object, "status", "directoryCreated"); made {
		o.Path = types.ReplicaDataPath(text("spec", "diskPath"), text("spec", "dataDirectoryName"))
	}
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	ready := condition(conditions, types.ConditionReady)
	o.Ready = ready["status"] == "True"
	if since, ok := ready["lastTransitionTime"].(string); ok {
		o.ReadySince, _ = time.Parse(time.RFC3339, since) // zero if it has another form: long ago
	}
	if c := condition(conditions, types.ConditionInstanceCreation); c["status"] == "False" {
		o.Reason, _ = c["reason"].(string)
		o.Message, _ = c["message"].(string)
	}
	if c := condition(conditions, types.ConditionDeviceInUse); c["status"] == "True" {
		o.Reason, _ = c["reason"].(string)
		o.Message, _ = c["message"].(string)
	}
	o.Phase = text("status", "phase")
	o.Disk, o.ReadyDisks = text("spec", "diskID"), readyDisks(u)
	return o
}

// readyDisks returns the UUIDs of the disks that a Longhorn node can use.
func readyDisks(u *unstructured.Unstructured) []string {
	var ready []string
	disks, _, _ := unstructured.NestedMap(u.Object, "status", "diskStatus")
	for _, d := range disks {
		d, _ := d.(map[string]any)
		conditions, _ := d["conditions"].([]any)
		if uuid, _ := d["diskUUID"].(string); uuid != "" && condition(conditions, types.ConditionReady)["status"] == "True" {
			ready = append(ready, uuid)
		}
	}
	slices.Sort(ready)
	return ready
}

// condition returns the condition of a type; nil if it is missing.
func condition(conditions []any, kind string) map[string]any {
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == kind {
			return c
		}
	}
	return nil
}

// perform does one step on the object that was observed, identified by its UID. If the object no longer exists,
// there is nothing to do.
func perform(ctx context.Context, o Options, a Action) error {
	uid := kubetypes.UID(a.UID)
	opts := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}
	var err error
	switch a.Verb {
	case Force:
		opts.GracePeriodSeconds = new(int64(0))
		err = o.resource(a.Kind).Delete(ctx, a.Name, opts)
	case Delete:
		err = o.resource(a.Kind).Delete(ctx, a.Name, opts)
	case Strip:
		err = strip(ctx, o, a)
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// strip removes this product's finalizers. It updates the version that it has read live and that shows the same
// deletion.
func strip(ctx context.Context, o Options, a Action) error {
	live, err := o.resource(a.Kind).Get(ctx, a.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if string(live.GetUID()) != a.UID || live.GetDeletionTimestamp() == nil {
		return errors.New("another object now has this name")
	}
	live.SetFinalizers(slices.DeleteFunc(live.GetFinalizers(), func(f string) bool { return isInstallationFinalizer(a.Kind, f) }))
	_, err = o.resource(a.Kind).Update(ctx, live, metav1.UpdateOptions{})
	return err
}
