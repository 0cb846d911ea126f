package defaults

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// maxBytes is the longest annotation that is read. 128 disks with every key fit easily. All annotations of an object
// together may have 256 KiB.
const maxBytes = 64 << 10

// value is one JSON token and its position.
type value struct {
	token json.Token
	at    int // byte offset
}

// reader returns the tokens of a text that is one JSON value, each with its position.
type reader struct {
	annotation string
	text       string
	decoder    *json.Decoder
	element    string // which element of the list is being read, for errors
}

// newReader first checks the syntax of the whole text. So a syntax error anywhere is reported before any disk is
// examined.
func newReader(annotation, text string) (*reader, error) {
	r := &reader{annotation: annotation, text: text}
	if len(text) > maxBytes {
		return nil, r.errorAt(0, "", fmt.Sprintf("must have at most %d bytes, has %d", maxBytes, len(text)))
	}
	for at, c := range text {
		if c == utf8.RuneError && !strings.HasPrefix(text[at:], string(utf8.RuneError)) {
			return nil, r.errorAt(at, "", "is not UTF-8")
		}
	}
	var whole json.RawMessage
	if err := json.Unmarshal([]byte(text), &whole); err != nil {
		at := 0
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) { // its Offset counts the bytes read, the bad one included
			at = int(max(0, syntax.Offset-1))
		}
		return nil, r.errorAt(at, "", "is not JSON: "+err.Error())
	}
	r.decoder = json.NewDecoder(strings.NewReader(text))
	r.decoder.UseNumber()
	return r, nil
}

// next returns the next token. An error is a bug of this package, but no reason to stop the process.
func (r *reader) next() (value, error) {
	at := int(r.decoder.InputOffset())
	at += len(r.text[at:]) - len(strings.TrimLeft(r.text[at:], " \t\r\n,:"))
	token, err := r.decoder.Token()
	if err != nil {
		return value{}, r.errorAt(at, "", "is not JSON: "+err.Error())
	}
	return value{token: token, at: at}, nil
}

// list calls each for every element of v, which must be a list; what names the elements. Each must read one value.
func (r *reader) list(v value, key, what string, each func(index int) error) error {
	if v.token != json.Delim('[') {
		return r.mismatch(v, key, "must be a list of "+what)
	}
	for index := 0; r.decoder.More(); index++ {
		if err := each(index); err != nil {
			return err
		}
	}
	_, err := r.next() // the ]
	return err
}

// object calls each for every member of v, which must be an object without duplicate keys. Each must read one value,
// which follows the key.
func (r *reader) object(v value, each func(key value) error) error {
	if v.token != json.Delim('{') {
		return r.mismatch(v, "", "must be an object")
	}
	seen := map[string]bool{}
	for r.decoder.More() {
		key, err := r.next()
		if err != nil {
			return err
		}
		name := key.token.(string) // the decoder guarantees a string
		if seen[name] {
			return r.errorAt(key.at, name, "occurs twice")
		}
		seen[name] = true
		if err := each(key); err != nil {
			return err
		}
	}
	_, err := r.next() // the }
	return err
}

// string returns the next value, which must be a string.
func (r *reader) string(key string) (string, value, error) {
	v, err := r.next()
	if err != nil {
		return "", v, err
	}
	text, ok := v.token.(string)
	if !ok {
		return "", v, r.mismatch(v, key, "must be a string")
	}
	return text, v, nil
}

// boolean returns the next value, which must be true or false.
func (r *reader) boolean(key string) (bool, value, error) {
	v, err := r.next()
	if err != nil {
		return false, v, err
	}
	b, ok := v.token.(bool)
	if !ok {
		return false, v, r.mismatch(v, key, "must be true or false")
	}
	return b, v, nil
}

func (r *reader) mismatch(v value, key, rule string) error {
	return r.errorAt(v.at, key, rule+", got "+shown(v.token))
}

func (r *reader) errorAt(at int, key, rule string) error {
	return &Error{Annotation: r.annotation, Element: r.element, Key: key, Position: r.position(at), Rule: rule}
}

func (r *reader) position(at int) Position {
	before := r.text[:at]
	line := before[strings.LastIndexByte(before, '\n')+1:]
	return Position{Line: 1 + strings.Count(before, "\n"), Column: 1 + utf8.RuneCountInString(line)}
}
