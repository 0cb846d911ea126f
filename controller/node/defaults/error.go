package defaults

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The annotations as errors name them, without their common prefix.
const (
	disksAnnotation = "default-disks-config"
	tagsAnnotation  = "default-node-tags"
)

// Position is a place in the text of an annotation. Both count from 1, Column in
// characters; the zero value is no place.
type Position struct{ Line, Column int }

func (p Position) String() string { return fmt.Sprintf("line %d column %d", p.Line, p.Column) }

// Error is why an annotation is not applied. Its text is for people, one sentence
// that fits an Event:
//
//	default-disks-config: disk 2, key "storageReserved", line 1 column 57: must be a whole number of bytes, got "1Gi"
type Error struct {
	// Annotation is the annotation's name without its prefix.
	Annotation string
	// Element says which one of the list, "disk 2" or "tag 1", counted from 1; empty: the
	// list, or the text, as a whole.
	Element string
	// Key of the disk, empty where the fault is not in the value of one.
	Key string
	// Position of the value, or of the key where that is what is wrong.
	Position Position
	// Rule that is broken, and the value that breaks it.
	Rule string
}

func (e *Error) Error() string {
	var where strings.Builder
	if e.Element != "" {
		where.WriteString(e.Element + ", ")
	}
	if e.Key != "" {
		where.WriteString("key " + strconv.Quote(shorten(e.Key)) + ", ")
	}
	return e.Annotation + ": " + where.String() + e.Position.String() + ": " + e.Rule
}

// maxShown is how many characters of a value errors show, so that their text always fits
// into an Event, whose message has at most 1024 bytes.
const maxShown = 60

func shorten(text string) string {
	if utf8.RuneCountInString(text) <= maxShown {
		return text
	}
	return string([]rune(text)[:maxShown]) + "…"
}

func quoted(text string) string { return strconv.QuoteToGraphic(shorten(text)) }

// shown is a token as errors show it.
func shown(token json.Token) string {
	switch t := token.(type) {
	case nil:
		return "null"
	case string:
		return quoted(t)
	case json.Delim:
		if t == '[' {
			return "a list"
		}
		return "an object"
	default: // a number as it is written, true, false
		return shorten(fmt.Sprint(t))
	}
}
