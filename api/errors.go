package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
	"github.com/longhorn-lep/longhorn-manager/manager"
)

// The status for each error. The client sees only texts that were written for it. For any other error it sees "500
// Internal Server Error", and the cause is logged.
//
//	*refusal, *methodError     its own status
//	*manager.Invalid           422
//	manager.ErrInsufficient    422, code "Insufficient Storage"
//	manager.ErrNotFound        404
//	manager.ErrConflict        409
//	manager.ErrChanged         412
//	manager.ErrUnavailable     503
//	context ended              503
//	*undecided                 503
//	anything else              500

// refusal is an error of this package with its own status; its text is for the client.
type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string { return r.text }

// textFailed is the message to clients for an error whose text was not written for them.
const textFailed = "the request failed; the logs of the longhorn-manager pods contain the cause"

// methodError: the path exists, but does not allow the method.
type methodError struct {
	method  string
	allowed []string
}

func (m *methodError) Error() string {
	return fmt.Sprintf("method %.20s is not allowed for this path; allowed methods: %s", m.method, m.allow())
}

func (m *methodError) allow() string { return strings.Join(m.allowed, ", ") }

// errorOf returns the body of the response for err.
func errorOf(err error) *v1.Error {
	wire := func(status int, message string) *v1.Error {
		return &v1.Error{
			Resource: v1.Resource{Type: v1.TypeError, Links: map[string]string{}, Actions: map[string]string{}},
			Status:   status, Code: http.StatusText(status), Message: message,
		}
	}
	var refused *refusal
	var methodErr *methodError
	var invalid *manager.Invalid
	var problem *manager.Problem
	var unclear *undecided
	switch {
	case errors.As(err, &refused):
		return wire(refused.status, refused.text)
	case errors.As(err, &methodErr):
		return wire(http.StatusMethodNotAllowed, methodErr.Error())
	case errors.As(err, &invalid):
		return wire(http.StatusUnprocessableEntity, invalid.Error())
	case errors.As(err, &problem):
		return problemOf(problem, wire)
	case errors.As(err, &unclear):
		return wire(http.StatusServiceUnavailable, textUndecided)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return wire(http.StatusServiceUnavailable, "the request timed out; it is unknown whether it was carried out")
	}
	return wire(http.StatusInternalServerError, textFailed)
}

func problemOf(p *manager.Problem, wire func(int, string) *v1.Error) *v1.Error {
	status, code := http.StatusInternalServerError, ""
	switch {
	case errors.Is(p.Class, manager.ErrNotFound):
		status = http.StatusNotFound
	case errors.Is(p.Class, manager.ErrConflict):
		status = http.StatusConflict
	case errors.Is(p.Class, manager.ErrChanged):
		status = http.StatusPreconditionFailed
	case errors.Is(p.Class, manager.ErrInsufficient):
		status, code = http.StatusUnprocessableEntity, v1.CodeInsufficientStorage
	case errors.Is(p.Class, manager.ErrUnavailable):
		status = http.StatusServiceUnavailable
	}
	e := wire(status, p.Text)
	e.Detail = p.Detail
	if code != "" {
		e.Code = code
	}
	return e
}

// decode reads a request's body. An empty body is an empty object. decode ignores unknown keys; decodeInput and
// decodeResource refuse them.
func decode[T any](body []byte) (T, error) {
	var value T
	if len(strings.TrimSpace(string(body))) == 0 {
		return value, nil
	}
	err := json.Unmarshal(body, &value)
	var syntax *json.SyntaxError
	var mismatch *json.UnmarshalTypeError
	var quantity *v1.QuantityError
	var setting *v1.SettingValueError
	switch {
	case err == nil:
		return value, nil
	case errors.As(err, &syntax):
		return value, &refusal{http.StatusBadRequest, fmt.Sprintf("the body is not valid JSON: %s: %v", position(body, syntax.Offset), syntax)}
	case errors.As(err, &mismatch) && mismatch.Field == "":
		return value, &refusal{http.StatusBadRequest, fmt.Sprintf("the body must be a JSON object, not a JSON %s", mismatch.Value)}
	case errors.As(err, &mismatch):
		return value, &manager.Invalid{
			Field: withoutEmbedded(reflect.TypeFor[T](), mismatch.Field),
			Rule:  fmt.Sprintf("must be of type %s, not a JSON %s (%s)", describe(mismatch.Type), mismatch.Value, position(body, mismatch.Offset)),
		}
	case errors.As(err, &quantity):
		return value, &manager.Invalid{Field: "size", Rule: quantity.Error()}
	case errors.As(err, &setting):
		return value, &manager.Invalid{Field: "value", Rule: setting.Error()}
	}
	return value, &refusal{http.StatusBadRequest, fmt.Sprintf("the body cannot be read: %v", err)}
}

// withoutEmbedded returns the path of a field in the JSON of a struct. In the path from encoding/json, a field of an
// embedded struct has the Go name of this struct in front.
func withoutEmbedded(t reflect.Type, path string) string {
	if t.Kind() != reflect.Struct {
		return path
	}
	for i := range t.NumField() {
		if f := t.Field(i); f.Anonymous {
			path = strings.TrimPrefix(path, f.Name+".")
		}
	}
	return path
}

// position returns where in the text the decoder stopped, for people. Line and column count from 1, the column in
// bytes.
func position(text []byte, offset int64) string {
	before := string(text[:min(max(offset-1, 0), int64(len(text)))])
	line := 1 + strings.Count(before, "\n")
	column := len(before) - strings.LastIndex(before, "\n")
	return fmt.Sprintf("line %d column %d", line, column)
}

// notFound refuses a request for an object that does not exist.
func notFound(id, name string) error {
	return &refusal{http.StatusNotFound, fmt.Sprintf("%s %q does not exist", id, name)}
}
