package api

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Attributes describe the access that a request needs, in the words of Kubernetes' authorization. Either Resource or
// Path is set.
type Attributes struct {
	// Verb is get, list, create, update or delete.
	Verb string
	// Resource is a plural, and Name the object's name. Name is empty for a collection, and for an object that does not
	// exist yet.
	Resource, Name string
	// Group is the API group of the resource: longhorn.io if empty, or GroupCore.
	Group string
	// Namespace is the namespace of the resource: the installation's if empty, or NoNamespace.
	Namespace string
	// Path is the path of a request for no resource, such as /v1/schemas.
	Path string
}

const (
	// GroupCore is Kubernetes' own group, which has no name.
	GroupCore = "core"
	// NoNamespace is the Namespace of objects that have no namespace.
	NoNamespace = "*"
)

func (a Attributes) String() string {
	if a.Resource == "" {
		return a.Verb + " " + a.Path
	}
	what := a.Verb + " " + a.Resource
	if a.Group == "" {
		what += ".longhorn.io"
	}
	if a.Name != "" {
		what += " " + a.Name
	}
	if a.Namespace != "" && a.Namespace != NoNamespace {
		what += " in namespace " + a.Namespace
	}
	return what
}

// notResources are the paths below /v1 that describe the API itself.
var notResources = []string{"", "schemas", "apiversions"}

const (
	resourceFindings    = "findings"
	resourceVolumes     = "volumes"
	resourceSnapshotCRs = "snapshotCRs"
)

// readBy has the kinds that the API server does not know, so that no user has a right to them. A user who may list the
// kind in the value may read the kind in the key. Findings explain what volumes, nodes and settings report about
// themselves. Snapshots are parts of volumes, under a name of this API.
var readBy = map[string]string{resourceFindings: resourceVolumes, strings.ToLower(resourceSnapshotCRs): resourceVolumes}

// attributesOf translates a request. It reads the path as http.ServeMux does, segment by segment before unescaping, so
// both mean the same resource. A path that has no handler has attributes too: a client without rights cannot find out
// which paths exist.
//
//	GET, HEAD /v1/<kind>         list         GET, HEAD /v1/<kind>/<name>...            get
//	POST      /v1/<kind>         create       DELETE    /v1/<kind>/<name>...            delete
//	anything else of a kind      update, so are all actions (POST /v1/<kind>/<name>?action=...)
//	GET, HEAD /v1/ws/<kind>, /v1/ws/<period>/<kind>   list of the kind: a stream shows what its collection does
//	GET, HEAD of findings, snapshotcrs   list volumes
//	the same of events           the same of the Events of Kubernetes, which are not objects of ours
//	any other path               get if it is safe, otherwise update, of the path
func attributesOf(r *http.Request) Attributes {
	segments := strings.Split(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/")
	for i, s := range segments {
		if plain, err := url.PathUnescape(s); err == nil {
			segments[i] = plain
		}
	}
	if len(segments) < 2 || segments[0] != "v1" || slices.Contains(notResources, segments[1]) {
		return Attributes{Verb: verbOf(r.Method, false), Path: r.URL.Path}
	}
	if segments[1] == streamSegment {
		if len(segments) != 3 && len(segments) != 4 {
			return Attributes{Verb: verbOf(r.Method, false), Path: r.URL.Path}
		}
		return ofKind(Attributes{Verb: verbOf(r.Method, true), Resource: segments[len(segments)-1]})
	}
	a := Attributes{Resource: segments[1]}
	if len(segments) > 2 {
		a.Name = strings.Join(segments[2:], "/")
	}
	a.Verb = verbOf(r.Method, a.Name == "")
	return ofKind(a)
}

// ofKind returns the attributes of a request with a verb for a kind of the API, or for a resource of the kind.
func ofKind(a Attributes) Attributes {
	if other, ok := readBy[a.Resource]; ok && (a.Verb == VerbList || a.Verb == VerbGet) {
		return Attributes{Verb: VerbList, Resource: other}
	}
	if a.Resource == "events" {
		a.Group = GroupCore
	}
	return a
}

func verbOf(method string, collection bool) string {
	switch {
	case isSafe(method) && collection:
		return "list"
	case isSafe(method):
		return "get"
	case method == http.MethodPost && collection:
		return "create"
	case method == http.MethodDelete && !collection:
		return "delete"
	}
	return "update"
}
