package defaults

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"
)

// ParseTags reads a default-node-tags annotation: a JSON list of tags, each a qualified name. It returns them sorted
// and without duplicates, not nil. An error is an *Error.
func ParseTags(text string) ([]string, error) {
	r, err := newReader(tagsAnnotation, text)
	if err != nil {
		return nil, err
	}
	v, err := r.next()
	if err != nil {
		return nil, err
	}
	return r.tags(v, "", func(index int) { r.element = fmt.Sprintf("tag %d", index+1) })
}

// tags reads the list of tags that starts with v. It calls at with each tag's position before it reads the tag.
func (r *reader) tags(v value, key string, at func(index int)) ([]string, error) {
	tags := []string{}
	err := r.list(v, key, "tags", func(index int) error {
		at(index)
		tag, v, err := r.string(key)
		if err != nil {
			return err
		}
		if len(validation.IsQualifiedName(tag)) > 0 {
			return r.errorAt(v.at, key, tagRule+", got "+quoted(tag))
		}
		tags = append(tags, tag)
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(tags)
	return slices.Compact(tags), nil
}

// tagRule describes IsQualifiedName in words.
const tagRule = `must be a tag: up to 63 letters, digits, '-', '_' or '.', with a letter or digit at both ends, and perhaps a DNS name and '/' before them`
