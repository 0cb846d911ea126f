package testutil

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"sync"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
)

// server answers the requests of fake clients from one tracker of objects. It does not set defaults, validate, select
// by field or collect garbage.
type server struct {
	scheme  *runtime.Scheme
	tracker clienttesting.ObjectTracker
	clock   clock.PassiveClock

	mu       sync.Mutex // guards all fields below, and orders the writes
	version  int64      // the last resourceVersion that an object got
	writes   []string   // "verb resource/name[/subresource]", accepted or refused
	failures map[string][]error
}

// react is the clients' reaction to all requests except watches.
func (s *server) react(action clienttesting.Action) (bool, runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch a := action.(type) {
	case clienttesting.CreateActionImpl:
		return s.answer(a, objectName(a.Object), func() (runtime.Object, error) { return s.create(a) })
	case clienttesting.UpdateActionImpl:
		return s.answer(a, objectName(a.Object), func() (runtime.Object, error) { return s.update(a) })
	case clienttesting.PatchActionImpl:
		// The result of a patch counts: it is recorded, and fails, as an update.
		u := clienttesting.NewUpdateSubresourceAction(a.Resource, a.Subresource, a.Namespace, nil)
		return s.answer(u, a.Name, func() (runtime.Object, error) {
			var err error
			if u.Object, err = s.patched(a); err != nil {
				return nil, err
			}
			return s.update(u)
		})
	case clienttesting.DeleteActionImpl:
		return s.answer(a, a.Name, func() (runtime.Object, error) { return nil, s.delete(a) })
	case clienttesting.GetActionImpl, clienttesting.ListActionImpl:
		if err := s.injected(action.GetVerb(), action.GetResource().Resource); err != nil {
			return true, nil, err
		}
		return clienttesting.ObjectReaction(s.tracker)(action)
	}
	return true, nil, fmt.Errorf("the fake API server does not know how to %s %s", action.GetVerb(), action.GetResource().Resource)
}

func (s *server) watch(action clienttesting.Action) (bool, watch.Interface, error) {
	opts := action.(clienttesting.WatchActionImpl).ListOptions
	w, err := s.tracker.Watch(action.GetResource(), action.GetNamespace(), opts)
	return true, w, err
}

// answer records a write and carries it out, unless the test has set a failure.
func (s *server) answer(action clienttesting.Action, name string, do func() (runtime.Object, error)) (bool, runtime.Object, error) {
	resource := action.GetResource().Resource
	text := action.GetVerb() + " " + resource + "/" + name
	if sub := action.GetSubresource(); sub != "" {
		text += "/" + sub
	}
	s.writes = append(s.writes, text)
	if err := s.injected(action.GetVerb(), resource); err != nil {
		return true, nil, err
	}
	obj, err := do()
	return true, obj, err
}

func (s *server) injected(verb, resource string) error {
	key := verb + " " + resource
	errs := s.failures[key]
	if len(errs) == 0 {
		return nil
	}
	s.failures[key] = errs[1:]
	return errs[0]
}

func (s *server) create(a clienttesting.CreateActionImpl) (runtime.Object, error) {
	obj := a.Object.DeepCopyObject()
	m := accessor(obj)
	if m.GetName() == "" {
		return nil, apierrors.NewBadRequest("name is required")
	}
	if m.GetResourceVersion() != "" {
		return nil, apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	}
	m.SetUID(types.UID(fmt.Sprintf("uid-%d", s.version+1)))
	m.SetCreationTimestamp(metav1.NewTime(s.clock.Now()))
	setStatus(obj, nil)
	s.stamp(m)
	if err := s.tracker.Create(a.Resource, obj, a.Namespace); err != nil {
		return nil, err
	}
	return obj, nil
}

func (s *server) update(a clienttesting.UpdateActionImpl) (runtime.Object, error) {
	given, name := a.Object.DeepCopyObject(), objectName(a.Object)
	stored, err := s.tracker.Get(a.Resource, a.Namespace, name)
	if err != nil {
		return nil, err
	}
	if err := checkVersion(a.Resource, given, stored); err != nil {
		return nil, err
	}
	if a.Subresource == "status" {
		next := stored.DeepCopyObject()
		setStatus(next, given)
		given = next
	} else {
		setStatus(given, stored)
		accessor(given).SetCreationTimestamp(accessor(stored).GetCreationTimestamp())
		accessor(given).SetDeletionTimestamp(accessor(stored).GetDeletionTimestamp())
	}
	accessor(given).SetResourceVersion(accessor(stored).GetResourceVersion())
	if equality.Semantic.DeepEqual(given, stored) {
		return given, nil
	}
	s.stamp(accessor(given))
	if m := accessor(given); m.GetDeletionTimestamp() != nil && len(m.GetFinalizers()) == 0 {
		return given, s.tracker.Delete(a.Resource, a.Namespace, name)
	}
	return given, s.tracker.Update(a.Resource, given, a.Namespace)
}

// patched returns the result of applying a patch to the stored object. As in the API server, the patch is applied
// first. The result is checked afterwards, with the UID and the version that the patch set.
func (s *server) patched(a clienttesting.PatchActionImpl) (runtime.Object, error) {
	stored, err := s.tracker.Get(a.Resource, a.Namespace, a.Name)
	if err != nil {
		return nil, err
	}
	before, err := json.Marshal(stored)
	if err != nil {
		return nil, err
	}
	after, err := applyPatch(before, a.PatchType, a.Patch)
	if err != nil {
		return nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
	}
	obj := reflect.New(reflect.TypeOf(stored).Elem()).Interface().(runtime.Object)
	return obj, json.Unmarshal(after, obj)
}

func applyPatch(doc []byte, kind types.PatchType, body []byte) ([]byte, error) {
	switch kind {
	case types.MergePatchType:
		return jsonpatch.MergePatch(doc, body)
	case types.JSONPatchType:
		p, err := jsonpatch.DecodePatch(body)
		if err != nil {
			return nil, err
		}
		return p.Apply(doc)
	}
	return nil, fmt.Errorf("the fake API server does not know patches of type %s", kind)
}

func checkVersion(gvr schema.GroupVersionResource, given, stored runtime.Object) error {
	g, s := accessor(given), accessor(stored)
	switch {
	case g.GetUID() != "" && g.GetUID() != s.GetUID():
		return apierrors.NewConflict(gvr.GroupResource(), g.GetName(), fmt.Errorf("uid is %s, not %s", s.GetUID(), g.GetUID()))
	case g.GetResourceVersion() != "" && g.GetResourceVersion() != s.GetResourceVersion():
		return apierrors.NewConflict(gvr.GroupResource(), g.GetName(), fmt.Errorf("version is %s, not %s", s.GetResourceVersion(), g.GetResourceVersion()))
	}
	return nil
}

func (s *server) delete(a clienttesting.DeleteActionImpl) error {
	stored, err := s.tracker.Get(a.Resource, a.Namespace, a.Name)
	if err != nil {
		return err
	}
	m := accessor(stored)
	if p := a.DeleteOptions.Preconditions; p != nil {
		if p.UID != nil && *p.UID != m.GetUID() || p.ResourceVersion != nil && *p.ResourceVersion != m.GetResourceVersion() {
			return apierrors.NewConflict(a.Resource.GroupResource(), a.Name, fmt.Errorf("precondition failed"))
		}
	}
	if len(m.GetFinalizers()) == 0 {
		s.version++
		return s.tracker.Delete(a.Resource, a.Namespace, a.Name)
	}
	if m.GetDeletionTimestamp() != nil {
		return nil
	}
	now := metav1.NewTime(s.clock.Now())
	m.SetDeletionTimestamp(&now)
	s.stamp(m)
	return s.tracker.Update(a.Resource, stored, a.Namespace)
}

// seed stores an object unchanged, except that it sets a version, and a UID if there is none.
func (s *server) seed(obj runtime.Object) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	obj = obj.DeepCopyObject()
	m := accessor(obj)
	if m.GetUID() == "" {
		m.SetUID(types.UID("uid-" + m.GetName()))
	}
	s.stamp(m)
	return s.tracker.Add(obj)
}

// overwrite replaces the object of the same name.
func (s *server) overwrite(obj runtime.Object) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	obj = obj.DeepCopyObject()
	m := accessor(obj)
	s.stamp(m)
	gvks, _, err := s.scheme.ObjectKinds(obj)
	if err != nil {
		return err
	}
	gvr, _ := meta.UnsafeGuessKindToResource(gvks[0])
	return s.tracker.Update(gvr, obj, m.GetNamespace())
}

func (s *server) stamp(m metav1.Object) {
	s.version++
	m.SetResourceVersion(strconv.FormatInt(s.version, 10))
}

// setStatus replaces the Status of obj by the Status of from, or by an empty one.
func setStatus(obj, from runtime.Object) {
	field := reflect.ValueOf(obj).Elem().FieldByName("Status")
	if !field.IsValid() {
		return
	}
	if from == nil {
		field.SetZero()
		return
	}
	field.Set(reflect.ValueOf(from.DeepCopyObject()).Elem().FieldByName("Status"))
}

func accessor(obj runtime.Object) metav1.Object {
	m, err := meta.Accessor(obj)
	if err != nil {
		panic(fmt.Sprintf("BUG: %T has no metadata: %v", obj, err))
	}
	return m
}

func objectName(obj runtime.Object) string { return accessor(obj).GetName() }
