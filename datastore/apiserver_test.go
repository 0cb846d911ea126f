package datastore_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json" // integers become int64
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/k8s/client/clientset/versioned"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// apiServer stores objects as JSON, so it keeps members that no Go type has. It processes a patch in the API server's
// order: it applies the patch to the stored object, and then compares versions.
type apiServer struct {
	t *testing.T

	mu       sync.Mutex // guards all below
	objects  map[string]map[string]any
	version  int
	requests []string               // "PATCH nodes/n/status"
	refuse   *apierrors.StatusError // the answer to writes that pass all other checks
}

func newAPIServer(t *testing.T) *apiServer {
	return &apiServer{t: t, objects: map[string]map[string]any{}, version: 100}
}

// datastore returns a Datastore with empty caches, like the one of another process.
func (s *apiServer) datastore() *datastore.Datastore {
	config := &rest.Config{Host: "http://api", Transport: s, QPS: -1}
	kube, err := kubernetes.NewForConfig(config)
	require.NoError(s.t, err)
	ours, err := versioned.NewForConfig(config)
	require.NoError(s.t, err)
	return datastore.New(datastore.Options{Kube: kube, Longhorn: ours, Namespace: types.Namespace})
}

// put stores an object as a new object.
func (s *apiServer) put(key string, object map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	object = clone(object)
	metadata := object["metadata"].(map[string]any)
	s.version++
	metadata["uid"] = fmt.Sprintf("uid-%d", s.version)
	metadata["resourceVersion"] = strconv.Itoa(s.version)
	s.objects[key] = object
}

// change performs a write by another client.
func (s *apiServer) change(key string, f func(object map[string]any)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s.objects[key])
	s.version++
	s.objects[key]["metadata"].(map[string]any)["resourceVersion"] = strconv.Itoa(s.version)
}

func (s *apiServer) remove(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects, key)
}

func (s *apiServer) stored(key string) map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	return clone(s.objects[key])
}

// taken returns the requests since the last call.
func (s *apiServer) taken() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	requests := s.requests
	s.requests = nil
	return requests
}

// RoundTrip makes the server a transport, so that no test needs the network.
func (s *apiServer) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
	}
	object, failed := s.answer(r.Method, r.URL.Path, r.Header.Get("Content-Type"), body)
	code := http.StatusOK
	var answer any = object
	if failed != nil {
		status := failed.Status()
		status.Kind, status.APIVersion = "Status", "v1"
		code, answer = int(status.Code), status
	}
	text, err := json.Marshal(answer)
	return &http.Response{
		StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(text)), Request: r,
	}, err
}

func (s *apiServer) answer(method, path, contentType string, body []byte) (map[string]any, *apierrors.StatusError) {
	parts := strings.Split(path, "/")
	subresource := ""
	if parts[len(parts)-1] == "status" {
		subresource, parts = "status", parts[:len(parts)-1]
	}
	if method == http.MethodPost {
		var object map[string]any
		if err := json.Unmarshal(body, &object); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		metadata := object["metadata"].(map[string]any)
		parts = append(parts, metadata["name"].(string))
		s.version++
		metadata["uid"], metadata["resourceVersion"] = fmt.Sprintf("uid-%d", s.version), strconv.Itoa(s.version)
		s.objects[strings.Join(parts[len(parts)-2:], "/")] = object
	}
	name, resource := parts[len(parts)-1], schema.GroupResource{Resource: parts[len(parts)-2]}
	key := resource.Resource + "/" + name
	s.requests = append(s.requests, strings.TrimSuffix(method+" "+key+"/"+subresource, "/"))
	stored, found := s.objects[key]
	if !found {
		return nil, apierrors.NewNotFound(resource, name)
	}
	if method != http.MethodPatch {
		return stored, nil
	}
	next, err := patched(stored, contentType, body)
	if err != nil {
		return nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
	}
	was, is := stored["metadata"].(map[string]any), next["metadata"].(map[string]any)
	switch {
	case is["resourceVersion"] == nil || is["resourceVersion"] == "":
		s.t.Errorf("%s %s without a version", method, path)
	case is["resourceVersion"] != was["resourceVersion"]:
		return nil, apierrors.NewConflict(resource, name, errors.New("version"))
	case is["uid"] != was["uid"]:
		return nil, apierrors.NewConflict(resource, name, errors.New("uid"))
	case s.refuse != nil:
		return nil, s.refuse
	}
	return s.store(key, subresource, stored, next), nil
}

// store stores the half of next that the request changes.
func (s *apiServer) store(key, subresource string, stored, next map[string]any) map[string]any {
	status := next["status"]
	if subresource == "status" {
		next = clone(stored)
	} else {
		status = stored["status"]
	}
	if next["status"] = status; status == nil {
		delete(next, "status")
	}
	if reflect.DeepEqual(next, stored) {
		return stored
	}
	s.version++
	next["metadata"].(map[string]any)["resourceVersion"] = strconv.Itoa(s.version)
	s.objects[key] = next
	return next
}

func patched(stored map[string]any, contentType string, body []byte) (map[string]any, error) {
	before, err := json.Marshal(stored)
	if err != nil {
		return nil, err
	}
	var after []byte
	switch contentType {
	case "application/merge-patch+json":
		after, err = jsonpatch.MergePatch(before, body)
	case "application/json-patch+json":
		var steps jsonpatch.Patch
		if steps, err = jsonpatch.DecodePatch(body); err == nil {
			after, err = steps.Apply(before)
		}
	default:
		err = fmt.Errorf("unexpected %s", contentType)
	}
	if err != nil {
		return nil, err
	}
	var next map[string]any
	return next, json.Unmarshal(after, &next)
}

// clone converts through JSON, so that numbers compare whatever their origin.
func clone(object map[string]any) map[string]any {
	text, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	var copied map[string]any
	if err := json.Unmarshal(text, &copied); err != nil {
		panic(err)
	}
	return copied
}

// as reads a stored object with this release's types.
func as[T runtime.Object](t *testing.T, object map[string]any, into T) T {
	text, err := json.Marshal(object)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, into))
	return into
}
