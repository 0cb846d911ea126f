package v1

// The types of resources of the API, as they appear in "type".
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

// Resource is the common part of every resource. Links and Actions must not be nil when it is written: clients iterate
// over both.
type Resource struct {
	ID   string `json:"id"`
	Type string `json:"type"`
	// Links are URLs by name; "self" is always there.
	Links map[string]string `json:"links"`
	// Actions are the URLs of actions by name, to which clients send a POST; only actions that are possible are listed.
	Actions map[string]string `json:"actions"`
}

// Head returns the Resource that is embedded in a resource.
func (r *Resource) Head() *Resource { return r }

// Object is any resource.
type Object interface{ Head() *Resource }

// Collection is a list of resources of one type. T is a resource's struct or an Object.
type Collection[T any] struct {
	Type         string            `json:"type"`
	ResourceType string            `json:"resourceType"`
	Links        map[string]string `json:"links"`
	Actions      map[string]string `json:"actions"`
	// CreateTypes has the URL to which clients send a POST, by the type of the resource that it creates.
	CreateTypes map[string]string `json:"createTypes,omitempty"`
	Data        []T               `json:"data"`
}

// CodeInsufficientStorage is the Code of an Error with status 422 that means: the request is well formed, but no set of
// disks has room for it now. All other errors have the text of their HTTP status as their code.
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

// APIVersion lists the existing versions; its links lead to all collections.
type APIVersion struct {
	Resource
}

// Schema describes a type of resource, or of an action's input, to programs.
type Schema struct {
	Resource
	PluralName string `json:"pluralName"`
	// ResourceFields are the fields by name.
	ResourceFields map[string]Field `json:"resourceFields"`
	// ResourceActions are the actions by name.
	ResourceActions map[string]Action `json:"resourceActions"`
	// CollectionMethods and ResourceMethods are HTTP methods. From them a client derives whether it offers to list,
	// create, change or remove resources of a type.
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
	// Create and Update report whether a client may set the field.
	Create   bool `json:"create"`
	Update   bool `json:"update"`
	Required bool `json:"required,omitempty"`
	Unique   bool `json:"unique,omitempty"`
	Nullable bool `json:"nullable,omitempty"`
	// Options are all allowed values, if they can be listed.
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

// Empty is the schema of an action whose answer has no content.
type Empty struct{}
