package api

import (
	"context"
	"maps"
	"net/http"
	"strings"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
	"github.com/longhorn-lep/longhorn-manager/manager"
)

// kind is one type of resource, and all that clients can do with it. An operation that is nil is not possible and is
// not advertised.
type kind struct {
	id     string
	plural string
	// wire is a value of the struct that the kind is sent as; its fields are the schema's fields.
	wire any
	// isView: the kind is a further collection of a type whose schema is defined elsewhere.
	isView bool
	hints  map[string]hint

	// list returns the collection; view is what the collection shows, "" if it never changes.
	list   func(ctx context.Context) ([]v1.Object, error)
	view   manager.View
	get    func(ctx context.Context, id string) (v1.Object, error)
	create func(ctx context.Context, body []byte) (v1.Object, error)
	update func(ctx context.Context, id string, body []byte) (v1.Object, error)
	remove func(ctx context.Context, id string) error
	// actions return the resource itself, or an ownAnswer.
	actions []action
	// offers reports whether a resource shows an action; nil: it shows all actions. Clients may call an action that is
	// not shown. Then the answer says what prevents the action.
	offers func(o v1.Object, action string) bool
	// links returns further links, in addition to the link to the resource itself; nil: there are none.
	links func(base string, o v1.Object) map[string]string
}

// action is what a client can do with a resource, by POST to <self>?action=<name>.
type action struct {
	name   string
	input  string // id of the schema of its body
	output string // id of the schema of its answer; empty: the resource itself
	do     func(ctx context.Context, id string, body []byte) (v1.Object, error)
}

// kindsOf returns the table of all kinds; those that are always empty come first.
func kindsOf(m *manager.Manager) []kind {
	return append(unsupportedKinds(),
		engineImageKind(m),
		eventKind(m),
		findingKind(m),
		instanceManagerKind(m),
		nodeKind(m),
		settingKind(m),
		shareManagerKind(m),
		snapshotCRKind(m),
		tagKind("diskTags", m.DiskTags, "disk"),
		tagKind("nodeTags", m.NodeTags, "node"),
		volumeKind(m),
		volumeAttachmentKind(m),
	)
}

// path returns the collection's path below /v1.
func (k *kind) path() string { return strings.ToLower(k.plural) }

func (k *kind) collectionMethods() []string {
	methods := []string{http.MethodGet}
	if k.create != nil {
		methods = append(methods, http.MethodPost)
	}
	return methods
}

func (k *kind) resourceMethods() []string {
	methods := []string{http.MethodGet}
	if k.update != nil {
		methods = append(methods, http.MethodPut)
	}
	if k.remove != nil {
		methods = append(methods, http.MethodDelete)
	}
	return methods
}

func (k *kind) collection(base string, objects []v1.Object) v1.Collection[v1.Object] {
	self := base + "/" + k.path()
	c := v1.Collection[v1.Object]{
		Type: v1.TypeCollection, ResourceType: k.id,
		Links: map[string]string{"self": self}, Actions: map[string]string{},
		Data: objects,
	}
	if k.create != nil {
		c.CreateTypes = map[string]string{k.id: self}
	}
	for _, object := range objects {
		k.link(base, object)
	}
	return c
}

// link sets the parts of an object that depend on the kind and on the request; the id must be set.
func (k *kind) link(base string, object v1.Object) {
	head := object.Head()
	self := resourceURL(base, k.path(), head.ID)
	head.Type = k.id
	head.Links = map[string]string{"self": self}
	if k.links != nil {
		maps.Copy(head.Links, k.links(base, object))
	}
	head.Actions = map[string]string{}
	for _, a := range k.actions {
		if k.offers != nil && !k.offers(object, a.name) {
			continue
		}
		head.Actions[a.name] = self + "?action=" + a.name
	}
	if v, ok := object.(*v1.Volume); ok {
		v.VolumeAttachment.Links["self"] = resourceURL(base, "volumeattachments", v.ID)
	}
}
