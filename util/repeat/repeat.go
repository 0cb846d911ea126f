// Package repeat recognises a text that equals the one before. A loop that fails at every attempt for the same reason
// uses it to report that reason once. The package must not know where texts are reported.
package repeat

// Filter stores the last text. Its zero value has none. It must not be used by several goroutines at a time.
type Filter struct{ last string }

// Note stores a text, and reports whether it must be reported: it is not empty, and it differs from the one before. An
// empty text means that there is nothing to report. After it, every text is new.
func (f *Filter) Note(text string) (isNew bool) {
	isNew = text != "" && text != f.last
	f.last = text
	return isNew
}

// NoteError is Note with the text of an error, or with an empty text for nil.
func (f *Filter) NoteError(err error) (isNew bool) {
	if err == nil {
		return f.Note("")
	}
	return f.Note(err.Error())
}

// Last returns the last text.
func (f *Filter) Last() string { return f.last }
