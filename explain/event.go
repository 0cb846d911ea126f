package explain

import (
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// lastEvent is the last Warning about an object that a test accepts; nil: there is none.
func lastEvent(s *Snapshot, about corev1.ObjectReference, accepts func(*corev1.Event) bool) *corev1.Event {
	var last *corev1.Event
	for _, e := range s.Events {
		o := e.InvolvedObject
		if e.Type != corev1.EventTypeWarning || o.Kind != about.Kind || o.Namespace != about.Namespace || o.Name != about.Name {
			continue
		}
		if o.UID != "" && about.UID != "" && o.UID != about.UID || !accepts(e) { // an earlier object had this name
			continue
		}
		if last == nil || seenAt(last).Before(seenAt(e)) {
			last = e
		}
	}
	return last
}

// seenAt is when an Event was last seen. Which of its times are set depends on the client that wrote it.
func seenAt(e *corev1.Event) time.Time {
	last := e.LastTimestamp.Time
	if e.Series != nil && e.Series.LastObservedTime.After(last) {
		last = e.Series.LastObservedTime.Time
	}
	if e.EventTime.After(last) {
		last = e.EventTime.Time
	}
	return last
}

var (
	combined  = "(combined from similar events): "
	callError = regexp.MustCompile(`rpc error: code = (\w+) desc = `)
)

// plainMessage is an Event's message without the words of its transport, and the code of the call that failed; empty:
// there is none.
func plainMessage(message string) (plain, code string) {
	message = strings.TrimPrefix(message, combined)
	if found := callError.FindStringSubmatchIndex(message); found != nil {
		code = message[found[2]:found[3]]
		message = callError.ReplaceAllString(message, "")
	}
	return strings.TrimSpace(message), code
}
