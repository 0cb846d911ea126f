// Package v1 holds the wire structs of the REST API, version v1: the JSON that
// Longhorn's clients send and read. Names of keys, and sizes that travel as
// decimal strings, are Longhorn's; keys for things that this system does not do
// are left out rather than filled with constants.
//
// It must not know where values come from or what is done with them; it imports nothing
// of the project, so that a client needs nothing else.
//
//	resource     {id, type, links{self}, actions{name: url}, ...}
//	collection   {type: "collection", resourceType, links{self}, data[], createTypes{}, actions{}}
//	error        {type: "error", status, code, message, detail, links{}, actions{}}
package v1
