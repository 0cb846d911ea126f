package api

import (
	"context"
	"slices"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
	"github.com/longhorn-lep/longhorn-manager/manager"
)

// tagKind is a collection of the tags that are in use.
func tagKind(plural string, list func() ([]string, error), tagType string) kind {
	tagOf := func(tag string) *v1.Tag {
		return &v1.Tag{Resource: v1.Resource{ID: tag}, Name: tag, TagType: tagType}
	}
	return kind{
		id: v1.TypeTag, plural: plural, wire: v1.Tag{}, isView: true, view: manager.ViewTags,
		list: func(context.Context) ([]v1.Object, error) {
			tags, err := list()
			return objectsOf(tags, tagOf), err
		},
		get: func(_ context.Context, name string) (v1.Object, error) {
			tags, err := list()
			if err != nil {
				return nil, err
			}
			if !slices.Contains(tags, name) {
				return nil, notFound(v1.TypeTag, name)
			}
			return tagOf(name), nil
		},
	}
}
