package explain

import (
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// lastEvent returns the last Warning about an object for which accepts returns true; nil: there is none.
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

// seenAt returns the time at which an Event was last seen. The client that wrote the Event determines which of its
// times are set.
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

// combined is the text that a client puts before the message of an Event that represents several.
const combined = "(combined from similar events): "

// callError matches the text that gRPC puts before the message of the called server.
var callError = regexp.MustCompile(`rpc error: code = \w+ desc = `)

// plainMessage returns the message of an Event or an attachment without the text of its transport.
func plainMessage(message string) string {
	return strings.TrimSpace(callError.ReplaceAllString(strings.TrimPrefix(message, combined), ""))
}

// outputOfTool matches the words before the output of a command in an error.
var outputOfTool = regexp.MustCompile(`[.:]? ?(\w+ )?output: .*$`)

// essenceOf returns a message in one line. Of a message with the output of a command, these are the first line without
// that output, and the last line, in which commands say why they failed.
func essenceOf(message string) string {
	var lines []string
	for line := range strings.Lines(plainMessage(message)) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	if len(lines) < 2 {
		return strings.Join(lines, "")
	}
	return outputOfTool.ReplaceAllString(lines[0], "") + ": " + lines[len(lines)-1]
}
