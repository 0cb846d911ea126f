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
	// ErrConflict: the state of the object, or another user's wish, stands against it now.
	ErrConflict = errors.New("conflict")
	// ErrChanged: the object is not as the requester read it, who asked for a change of that alone.
	ErrChanged = errors.New("changed since it was read")
	// ErrInsufficient: the cluster has no place for it now.
	ErrInsufficient = errors.New("insufficient storage")
	// ErrUnavailable: something that must be asked does not answer, or cannot do it just now.
	ErrUnavailable = errors.New("unavailable")
)

// Problem is a refusal whose text may be shown to the requester.
type Problem struct {
	Class  error // one of the errors above
	Text   string
	Detail string // more lines, or none
	Cause  error  // for the log; may be nil
}

// Error gives the text alone.
func (p *Problem) Error() string { return p.Text }

// Unwrap leads to the class and to the cause.
func (p *Problem) Unwrap() []error {
	if p.Cause == nil {
		return []error{p.Class}
	}
	return []error{p.Class, p.Cause}
}

// Invalid says that a field of the request breaks a rule.
type Invalid struct {
	// Field as it is called on the wire; empty: the request as a whole.
	Field string
	// Value as it was given; empty: it is not shown.
	Value string
	// Rule is a clause that says what is allowed, or what is wrong.
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

// storeError tells what a failed read or write of an object means to the caller. It leaves
// errors alone that say more about the inside than about the request.
func storeError(kind, name string, err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsNotFound(err):
		return notFound(kind, name)
	case apierrors.IsAlreadyExists(err):
		return &Problem{Class: ErrConflict, Text: fmt.Sprintf("%s %q exists already", kind, name), Cause: err}
	case apierrors.IsConflict(err):
		return &Problem{
			Class: ErrConflict, Cause: err,
			Text: fmt.Sprintf("%s %q is being changed by others; try again", kind, name),
		}
	case apierrors.IsInvalid(err):
		return invalidOf(err)
	case apierrors.IsForbidden(err):
		return forbiddenOf(err)
	}
	return err
}

// forbiddenOf passes on why a policy of the cluster forbids a write. If this program itself
// lacks the right to write, that is no refusal of the request, and names no cause.
func forbiddenOf(err error) error {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		if details := status.Status().Details; details != nil && len(details.Causes) > 0 {
			return &Problem{Class: ErrConflict, Text: policyText(details.Causes[0].Message), Cause: err}
		}
	}
	return err
}

// policyText is the text of an admission policy in the API server's message, which begins with the name of the policy. Any other
// message is returned as it is.
func policyText(message string) string {
	if _, text, found := strings.Cut(message, " denied request: "); found && strings.HasPrefix(message, "ValidatingAdmissionPolicy '") {
		return text
	}
	return message
}

// wholeObject stands in the place of a field where a rule of the schema is on the object.
const wholeObject = "<nil>"

// invalidOf passes on the first rule of the object's schema that was broken.
func invalidOf(err error) error {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		if details := status.Status().Details; details != nil && len(details.Causes) > 0 {
			cause := details.Causes[0]
			if cause.Field == wholeObject { // a rule on several fields, whose text names them
				return &Invalid{Rule: strings.TrimPrefix(cause.Message, `Invalid value: "object": `)}
			}
			return &Invalid{Field: cause.Field, Rule: policyText(cause.Message)}
		}
	}
	return &Invalid{Rule: err.Error()}
}
