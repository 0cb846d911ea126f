package manager

import (
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// The classes of a Problem.
var (
	// ErrNotFound: the named object does not exist.
	ErrNotFound = errors.New("not found")
	// ErrConflict: the state of the object, or another user's request, does not allow it now.
	ErrConflict = errors.New("conflict")
	// ErrChanged: the request is for a certain version of the object, and the object has changed since the client read
	// it.
	ErrChanged = errors.New("changed since it was read")
	// ErrInsufficient: the cluster has no place for it now.
	ErrInsufficient = errors.New("insufficient storage")
	// ErrUnavailable: a component that is needed does not answer, or cannot do it at the moment.
	ErrUnavailable = errors.New("unavailable")
)

// Problem is a refusal whose text may be shown to the requester.
type Problem struct {
	Class  error // one of the errors above
	Text   string
	Detail string // more lines, or empty
	Cause  error  // for the log; may be nil
}

// Error returns only the text.
func (p *Problem) Error() string { return p.Text }

// Unwrap returns the class and the cause.
func (p *Problem) Unwrap() []error {
	if p.Cause == nil {
		return []error{p.Class}
	}
	return []error{p.Class, p.Cause}
}

// Invalid means that a field of the request breaks a rule.
type Invalid struct {
	// Field is the name of the field on the wire; empty: the request as a whole.
	Field string
	// Value is the value in the request; empty: it is not shown.
	Value string
	// Rule is a clause with the allowed values, or with the mistake.
	Rule string
}

// Error names the field, the value and the rule.
func (i *Invalid) Error() string {
	switch {
	case i.Field == "":
		return i.Rule
	case i.Value == "":
		return fmt.Sprintf("%s: %s", i.Field, i.Rule)
	}
	return fmt.Sprintf("%s: %.100q %s", i.Field, i.Value, i.Rule)
}

func notFound(kind, name string) error {
	return &Problem{Class: ErrNotFound, Text: fmt.Sprintf("%s %q does not exist", kind, name)}
}

func conflict(format string, args ...any) error {
	return &Problem{Class: ErrConflict, Text: fmt.Sprintf(format, args...)}
}

// storeError translates the error of a read or write of an object for the caller. It returns an error unchanged if the
// cause is in this program or the cluster rather than in the request.
func storeError(kind, name string, err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsNotFound(err):
		return notFound(kind, name)
	case apierrors.IsAlreadyExists(err):
		return &Problem{Class: ErrConflict, Text: fmt.Sprintf("%s %q already exists", kind, name), Cause: err}
	case apierrors.IsConflict(err):
		return &Problem{
			Class: ErrConflict, Cause: err,
			Text: fmt.Sprintf("other clients changed %s %q at the same time; try again", kind, name),
		}
	case apierrors.IsInvalid(err):
		return invalidOf(err)
	case apierrors.IsForbidden(err):
		return forbiddenOf(err)
	}
	return err
}

// forbiddenOf passes on the reason why a policy of the cluster forbids a write. If this program itself lacks the right
// to write, the API server names no cause. This is not a refusal of the request.
func forbiddenOf(err error) error {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		if details := status.Status().Details; details != nil && len(details.Causes) > 0 {
			return &Problem{Class: ErrConflict, Text: policyText(details.Causes[0].Message), Cause: err}
		}
	}
	return err
}

// policyText returns an admission policy's text from the API server's message, which starts with the name of the
// policy. It returns any other message unchanged.
func policyText(message string) string {
	if _, text, found := strings.Cut(message, " denied request: "); found && strings.HasPrefix(message, "ValidatingAdmissionPolicy '") {
		return text
	}
	return message
}

// wholeObject stands in place of the field if a rule of the schema is for the whole object.
const wholeObject = "<nil>"

// invalidOf passes on the first rule of the object's schema that was broken.
func invalidOf(err error) error {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		if details := status.Status().Details; details != nil && len(details.Causes) > 0 {
			cause := details.Causes[0]
			if cause.Field == wholeObject { // a rule for several fields, whose text names them
				return &Invalid{Rule: strings.TrimPrefix(cause.Message, `Invalid value: "object": `)}
			}
			return &Invalid{Field: cause.Field, Rule: policyText(cause.Message)}
		}
	}
	return &Invalid{Rule: err.Error()}
}
