package v1

// The types of resources that have a place in the API, as they stand in "type".
const (
	TypeAPIVersion       = "apiVersion"
	TypeCollection       = "collection"
	TypeEngineImage      = "engineImage"
	TypeEvent            = "event"
	TypeError            = "error"
	TypeFinding          = "finding"
	TypeInstanceManager  = "instanceManager"
	TypeNode             = "node"
	TypeSchema           = "schema"
	TypeSetting          = "setting"
	TypeShareManager     = "shareManager"
	TypeTag              = "tag"
	TypeVolume           = "volume"
	TypeVolumeAttachment = "volumeAttachment"
)

// Resource is what every resource begins with. Links and Actions must not be nil
// when it is written: clients iterate over both.
type Resource struct {
	ID   string `json:"id"`
	Type string `json:"type"`
	// Links are URLs by name; "self" is always there.
	Links map[string]string `json:"links"`
	// Actions are URLs by name, to be POSTed to; only those that can be done are listed.
	Actions map[string]string `json:"actions"`
}

// Head gives access to the resource's own Resource, whatever embeds it.
func (r *Resource) Head() *Resource { return r }

// Object is any resource.
type Object interface{ Head() *Resource }

// Collection is a list of resources of one type. T is a resource's struct or an
// Object.
type Collection[T any] struct {
	Type         string            `json:"type"`
	ResourceType string            `json:"resourceType"`
	Links        map[string]string `json:"links"`
	Actions      map[string]string `json:"actions"`
	// CreateTypes gives the URL to POST to, by the type of what is made.
	CreateTypes map[string]string `json:"createTypes,omitempty"`
	Data        []T               `json:"data"`
}

// CodeInsufficientStorage is the Code of an Error with status 422 that means: the
// request is well formed, but no set of disks can take it now. All other errors
// have the text of their HTTP status as their code.
const CodeInsufficientStorage = "Insufficient Storage"

// Error is the body of every response that is not a success.
type Error struct {
	Resource
	// Status is the HTTP status.
	Status int    `json:"status"`
	Code   string `json:"code"`
	// Message is for people: it names the field or object and the rule.
	Message string `json:"message"`
	// Detail holds further lines, such as one for each rejected disk. It may be empty.
	Detail string `json:"detail"`
}

// APIVersion tells which versions exist; its links lead to all collections.
type APIVersion struct {
	Resource
}

// Schema describes a type of resource, or of an action's input, to programs.
type Schema struct {
	Resource
	PluralName string `json:"pluralName"`
	// ResourceFields by name.
	ResourceFields map[string]Field `json:"resourceFields"`
	// ResourceActions by name.
	ResourceActions map[string]Action `json:"resourceActions"`
	// CollectionMethods and ResourceMethods are HTTP methods. A client offers to list,
	// make, change or remove resources of a type by what it finds here.
	CollectionMethods []string `json:"collectionMethods"`
	ResourceMethods   []string `json:"resourceMethods"`
	// CollectionActions and CollectionFilters are always empty: collections have none.
	CollectionActions map[string]Action   `json:"collectionActions"`
	CollectionFilters map[string][]string `json:"collectionFilters"`
}

// Field describes one field. Type is string, int, float, bool, the id of another
// schema, or array[...] or map[...] of one of these.
type Field struct {
	Type string `json:"type"`
	// Default is a hint for forms; the server's own defaults are in its documentation.
	Default any `json:"default,omitempty"`
	// Create and Update tell whether a client may give the field.
	Create   bool `json:"create"`
	Update   bool `json:"update"`
	Required bool `json:"required,omitempty"`
	Unique   bool `json:"unique,omitempty"`
	Nullable bool `json:"nullable,omitempty"`
	// Options are all values allowed, where they can be listed.
	Options []string `json:"options,omitempty"`
}

// Action names the schemas of an action's body and of its response.
type Action struct {
	Input  string `json:"input,omitempty"`
	Output string `json:"output,omitempty"`
}

// Condition is one observed aspect of an object.
type Condition struct {
	Type               string `json:"type"`
	Status             string `json:"status"`
	LastProbeTime      string `json:"lastProbeTime"`
	LastTransitionTime string `json:"lastTransitionTime"`
	Reason             string `json:"reason"`
	Message            string `json:"message"`
}

// Empty is the schema of an action that answers with nothing.
type Empty struct{}
