// Package v1 holds the wire structs of the REST API, version v1: the JSON that Longhorn's clients send and read. Names
// of keys, and sizes that are sent as decimal strings, are Longhorn's. Keys for features that this system does not have
// are left out rather than filled with constants.
//
// It must not know where values come from or how they are used. It imports nothing of the project, so that a client
// needs nothing else.
//
//	resource     {id, type, links{self}, actions{name: url}, ...}
//	collection   {type: "collection", resourceType, links{self}, data[], createTypes{}, actions{}}
//	error        {type: "error", status, code, message, detail, links{}, actions{}}
package v1
