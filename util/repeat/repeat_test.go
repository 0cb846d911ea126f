package repeat

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestFilter(t *testing.T) {
	cases := []struct {
		name  string
		texts []string
		want  []bool
	}{
		{"the first text → new", []string{"a"}, []bool{true}},
		{"no text → nothing to report", []string{""}, []bool{false}},
		{"the same text again → only the first is new", []string{"a", "a", "a"}, []bool{true, false, false}},
		{"another text → new", []string{"a", "b"}, []bool{true, true}},
		{"back to an earlier text → new", []string{"a", "b", "a"}, []bool{true, true, true}},
		{"the same text after none → new", []string{"a", "", "", "a"}, []bool{true, false, false, true}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var texts, failures Filter
			for i, text := range c.texts {
				assert.Equal(t, c.want[i], texts.Note(text), "text %d", i)
				assert.Equal(t, text, texts.Last())
				assert.Equal(t, c.want[i], failures.NoteError(failure(text)), "error %d", i)
				assert.Equal(t, text, failures.Last())
			}
		})
	}
}

// failure is a different value at each call: only the texts of errors are compared.
func failure(text string) error {
	if text == "" {
		return nil
	}
	return errors.New(text)
}
