package defaults

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The names of the annotations in errors, without their common prefix.
const (
	disksAnnotation = "default-disks-config"
	tagsAnnotation  = "default-node-tags"
)

// Position is a place in the text of an annotation. Both fields count from 1, Column in characters. The zero value
// means no place.
type Position struct{ Line, Column int }

func (p Position) String() string { return fmt.Sprintf("line %d column %d", p.Line, p.Column) }

// Error is why an annotation is not applied. Its text is one sentence for users, short enough for an Event:
//
//	default-disks-config: disk 2, key "storageReserved", line 1 column 57: must be a whole number of bytes, got "1Gi"
type Error struct {
	// Annotation is the annotation's name without its prefix.
	Annotation string
	// Element says which element of the list, "disk 2" or "tag 1", counted from 1. It is empty for the list, or the
	// text, as a whole.
	Element string
	// Key of the disk. It is empty if the mistake is not in the value of a key.
	Key string
	// Position of the value, or of the key if the key is wrong.
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

// maxShown is how many characters of a value errors show, so that their text always fits into an Event. The message of
// an Event has at most 1024 bytes.
const maxShown = 60

func shorten(text string) string {
	if utf8.RuneCountInString(text) <= maxShown {
		return text
	}
	return string([]rune(text)[:maxShown]) + "…"
}

func quoted(text string) string { return strconv.QuoteToGraphic(shorten(text)) }

// shown is a token in the form that errors show.
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
