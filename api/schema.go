package api

import (
	"cmp"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
)

// hint is what a schema contains for a field in addition to its name and type.
type hint struct {
	typ      string // replaces the Go type
	create   bool
	update   bool
	required bool
	unique   bool
	def      any
	options  []string
}

// plainType is the schema of a type that has no collection.
type plainType struct {
	id    string
	wire  any
	hints map[string]hint
	input bool // clients send it: all its fields may be given
}

// plainTypes are the inputs, and the parts of resources.
var plainTypes = slices.Concat(optionInputs(), []plainType{
	{id: "UpdateAccessModeInput", input: true, wire: v1.UpdateAccessModeInput{}, hints: map[string]hint{
		"accessMode": {required: true, options: []string{"rwo", "rwop", "rwx"}},
	}},
	{id: "UpdateDataLocalityInput", input: true, wire: v1.UpdateDataLocalityInput{}, hints: map[string]hint{
		"dataLocality": {required: true, options: []string{"disabled", "best-effort", "strict-local"}},
	}},
	{id: "UpdateDiskSelectorInput", input: true, wire: v1.UpdateDiskSelectorInput{}, hints: map[string]hint{"diskSelector": {required: true}}},
	{id: "UpdateNodeSelectorInput", input: true, wire: v1.UpdateNodeSelectorInput{}, hints: map[string]hint{"nodeSelector": {required: true}}},
	{id: "UpdateReplicaCountInput", input: true, wire: v1.UpdateReplicaCountInput{}, hints: map[string]hint{"replicaCount": {required: true}}},
	{id: "PVCCreateInput", input: true, wire: v1.PVCCreateInput{}, hints: map[string]hint{"namespace": {required: true}}},
	{id: "PVCreateInput", input: true, wire: v1.PVCreateInput{}, hints: map[string]hint{"fsType": {def: "ext4", options: []string{"ext4", "xfs"}}}},
	{id: "attachInput", input: true, wire: v1.AttachInput{}, hints: map[string]hint{
		"hostId":       {required: true},
		"attacherType": {options: []string{v1.AttacherTypeAPI, v1.AttacherTypeCSI}},
	}},
	{id: "attachment", wire: v1.Attachment{}},
	{id: "backupStatus", wire: v1.BackupStatus{}},
	{id: "cloneStatus", wire: v1.CloneStatus{}},
	{id: "controller", wire: v1.Controller{}},
	{id: "detachInput", input: true, wire: v1.DetachInput{}},
	{id: "diskCondition", wire: v1.Condition{}},
	{id: "diskInfo", wire: v1.DiskInfo{}, hints: map[string]hint{"conditions": {typ: "map[diskCondition]"}}},
	{id: "diskUpdate", input: true, wire: v1.DiskUpdate{}},
	{id: "diskUpdateInput", input: true, wire: v1.DiskUpdateInput{}},
	{id: "empty", wire: v1.Empty{}},
	{id: v1.TypeError, wire: v1.Error{}},
	{id: "eventMetadata", wire: v1.EventMetadata{}},
	{id: "eventSource", wire: v1.EventSource{}},
	{id: "findingObject", wire: v1.FindingObject{}},
	{id: "instanceProcess", wire: v1.InstanceProcess{}},
	{id: "instanceProcessSpec", wire: v1.InstanceProcessSpec{}},
	{id: "instanceProcessStatus", wire: v1.InstanceProcessStatus{}},
	{id: "involvedObject", wire: v1.InvolvedObject{}},
	{id: "kubernetesEvent", wire: v1.KubernetesEvent{}},
	{id: "kubernetesStatus", wire: v1.KubernetesStatus{}},
	{id: "longhornCondition", wire: v1.Condition{}},
	{id: "nodeCondition", wire: v1.Condition{}},
	{id: "purgeStatus", wire: v1.PurgeStatus{}},
	{id: "rebuildStatus", wire: v1.RebuildStatus{}},
	{id: "replica", wire: v1.Replica{}},
	{id: v1.TypeSnapshot, wire: v1.Snapshot{}},
	{id: "snapshotCRInput", input: true, wire: v1.SnapshotCRInput{}},
	{id: "snapshotInput", input: true, wire: v1.SnapshotInput{}},
	{id: "expandInput", input: true, wire: v1.ExpandInput{}, hints: map[string]hint{"size": {required: true}}},
	{id: "replicaRemoveInput", input: true, wire: v1.ReplicaRemoveInput{}, hints: map[string]hint{"name": {required: true}}},
	{id: "restoreStatus", wire: v1.RestoreStatus{}},
	{id: "salvageInput", input: true, wire: v1.SalvageInput{}, hints: map[string]hint{"names": {required: true}}},
	{id: "settingDefinition", wire: v1.SettingDefinition{}},
	{id: "step", wire: v1.Step{}},
	{id: v1.TypeTag, wire: v1.Tag{}},
	{id: "volumeCondition", wire: v1.Condition{}},
	{id: "volumeRecurringJob", wire: v1.VolumeRecurringJob{}},
	{id: "workloadStatus", wire: v1.WorkloadStatus{}},
})

// schemasOf returns all schemas, sorted by id; their links depend on the request.
func schemasOf(kinds []kind) []v1.Schema {
	names := map[reflect.Type]string{}
	for _, p := range plainTypes {
		names[reflect.TypeOf(p.wire)] = p.id
	}
	// One struct has several ids. A field that names none of them has this id.
	names[reflect.TypeFor[v1.Condition]()] = "longhornCondition"
	for _, k := range kinds {
		names[reflect.TypeOf(k.wire)] = k.id
	}
	schemas := []v1.Schema{
		// The server itself answers the collections of these two.
		{Resource: v1.Resource{ID: v1.TypeAPIVersion}, PluralName: "apiVersions", CollectionMethods: []string{http.MethodGet}, ResourceMethods: []string{http.MethodGet}},
		{Resource: v1.Resource{ID: v1.TypeSchema}, PluralName: "schemas", CollectionMethods: []string{http.MethodGet}, ResourceMethods: []string{http.MethodGet}},
	}
	for _, p := range plainTypes {
		fields := fieldsOf(reflect.TypeOf(p.wire), p.hints, names)
		for name, field := range fields {
			field.Create = field.Create || p.input
			fields[name] = field
		}
		schemas = append(schemas, v1.Schema{
			Resource: v1.Resource{ID: p.id}, PluralName: plural(p.id), ResourceFields: fields,
		})
	}
	schemas = append(schemas, unsupportedInputSchemas()...)
	for i := range kinds {
		if !kinds[i].isView {
			schemas = append(schemas, kinds[i].schema(names))
		}
	}
	for i := range schemas {
		complete(&schemas[i])
	}
	slices.SortFunc(schemas, func(a, b v1.Schema) int { return cmp.Compare(a.ID, b.ID) })
	return schemas
}

func (k *kind) schema(names map[reflect.Type]string) v1.Schema {
	s := v1.Schema{
		Resource: v1.Resource{ID: k.id}, PluralName: k.plural,
		ResourceFields:    fieldsOf(reflect.TypeOf(k.wire), k.hints, names),
		ResourceActions:   map[string]v1.Action{},
		CollectionMethods: k.collectionMethods(),
		ResourceMethods:   k.resourceMethods(),
	}
	for _, a := range k.actions {
		s.ResourceActions[a.name] = v1.Action{Input: a.input, Output: cmp.Or(a.output, k.id)}
	}
	return s
}

// complete replaces nil by empty: clients iterate over all of these.
func complete(s *v1.Schema) {
	s.Type = v1.TypeSchema
	s.Actions = map[string]string{}
	s.CollectionActions = map[string]v1.Action{}
	s.CollectionFilters = map[string][]string{}
	if s.ResourceFields == nil {
		s.ResourceFields = map[string]v1.Field{}
	}
	if s.ResourceActions == nil {
		s.ResourceActions = map[string]v1.Action{}
	}
	if s.CollectionMethods == nil {
		s.CollectionMethods = []string{}
	}
	if s.ResourceMethods == nil {
		s.ResourceMethods = []string{}
	}
}

// fieldsOf returns the fields of a wire struct. The fields of v1.Resource belong to every resource and are not listed.
// The fields of any other embedded struct are listed as fields of the struct. A hint for a field that does not exist is
// a mistake in the table.
func fieldsOf(t reflect.Type, hints map[string]hint, names map[reflect.Type]string) map[string]v1.Field {
	fields := map[string]v1.Field{}
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			if f.Type != reflect.TypeFor[v1.Resource]() {
				for name, field := range fieldsOf(f.Type, nil, names) {
					fields[name] = field
				}
			}
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		fields[name] = v1.Field{Type: typeName(f.Type, names)}
	}
	for name, h := range hints {
		field, ok := fields[name]
		if !ok {
			panic(fmt.Sprintf("BUG: schema hint for %s.%s, which does not exist", t, name))
		}
		field.Type = cmp.Or(h.typ, field.Type)
		field.Create, field.Update, field.Required, field.Unique = h.create, h.update, h.required, h.unique
		field.Default, field.Options = h.def, h.options
		fields[name] = field
	}
	return fields
}

// typeName returns the name of a Go type in schemas.
func typeName(t reflect.Type, names map[reflect.Type]string) string {
	if name, ok := names[t]; ok {
		return name
	}
	switch t.Kind() {
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "bool"
	case reflect.Int, reflect.Int64:
		return "int"
	case reflect.Pointer:
		return typeName(t.Elem(), names)
	case reflect.Slice:
		return "array[" + typeName(t.Elem(), names) + "]"
	case reflect.Map:
		return "map[" + typeName(t.Elem(), names) + "]"
	}
	panic(fmt.Sprintf("BUG: no schema stands for the Go type %s", t))
}

// describe returns the name of a Go type for people who send JSON.
func describe(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Struct:
		return "object"
	case reflect.Slice:
		return "array of " + describe(t.Elem())
	case reflect.Map:
		return "object (a map by name)"
	}
	return typeName(t, nil)
}

// plural returns the plural of a name as Longhorn's clients guess it.
func plural(name string) string {
	for _, end := range []string{"s", "ch", "x"} {
		if strings.HasSuffix(name, end) {
			return name + "es"
		}
	}
	return name + "s"
}

// linked returns a schema with its links for a request.
func linked(base string, s v1.Schema) *v1.Schema {
	s.Links = map[string]string{"self": resourceURL(base, "schemas", s.ID)}
	if slices.Contains(s.CollectionMethods, http.MethodGet) {
		s.Links["collection"] = base + "/" + strings.ToLower(s.PluralName)
	}
	return &s
}

func (s *Server) listSchemas(r *http.Request) (reply, error) {
	base := baseURL(r)
	c := v1.Collection[*v1.Schema]{
		Type: v1.TypeCollection, ResourceType: v1.TypeSchema,
		Links: map[string]string{"self": base + "/schemas"}, Actions: map[string]string{},
	}
	for _, schema := range s.schemas {
		c.Data = append(c.Data, linked(base, schema))
	}
	return reply{http.StatusOK, c}, nil
}

func (s *Server) getSchema(r *http.Request) (reply, error) {
	id := r.PathValue("id")
	for _, schema := range s.schemas {
		if schema.ID == id {
			return reply{http.StatusOK, linked(baseURL(r), schema)}, nil
		}
	}
	return reply{}, &refusal{http.StatusNotFound, fmt.Sprintf("schema %q does not exist", id)}
}

func (s *Server) version(base string) *v1.APIVersion {
	version := &v1.APIVersion{Resource: v1.Resource{
		ID: "v1", Type: v1.TypeAPIVersion, Actions: map[string]string{},
		Links: map[string]string{"self": base, "schemas": base + "/schemas"},
	}}
	for i := range s.kinds {
		version.Links[s.kinds[i].plural] = base + "/" + s.kinds[i].path()
	}
	return version
}

func (s *Server) getVersion(r *http.Request) (reply, error) {
	return reply{http.StatusOK, s.version(baseURL(r))}, nil
}

func (s *Server) listVersions(r *http.Request) (reply, error) {
	base := baseURL(r)
	return reply{http.StatusOK, v1.Collection[*v1.APIVersion]{
		Type: v1.TypeCollection, ResourceType: v1.TypeAPIVersion,
		Links: map[string]string{"self": base + "/apiversions"}, Actions: map[string]string{},
		Data: []*v1.APIVersion{s.version(base)},
	}}, nil
}
