package types

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// PodOwners are kinds of controllers that create pods. The setting
// blacklist-for-auto-delete-pod-when-volume-detached-unexpectedly lists them as GROUP/KIND, separated by semicolons,
// for example apps/ReplicaSet. Kinds of the core group have no group.
type PodOwners []string

// PodOwnerEntries is the rule of the entries of PodOwners.
var PodOwnerEntries = EntryRule{
	Separator: ";", Pattern: `^([^/ ,]+/)?[^/ ,]+$`,
	Says: "has the entry %q; each entry must be GROUP/KIND, as apps/StatefulSet, and entries are separated by semicolons",
}

// ParsePodOwners parses such a list. An empty text is an empty list.
func ParsePodOwners(text string) (PodOwners, error) {
	var owners PodOwners
	for _, part := range strings.Split(text, ";") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		group, kind, grouped := strings.Cut(part, "/")
		if !grouped {
			kind = group
		}
		if grouped && group == "" || kind == "" || strings.ContainsAny(kind, "/ ,") || strings.ContainsAny(group, " ,") {
			return nil, fmt.Errorf(PodOwnerEntries.Says, part)
		}
		owners = append(owners, part)
	}
	return owners, nil
}

// CheckPodOwners checks such a list.
func CheckPodOwners(text string) error {
	_, err := ParsePodOwners(text)
	return err
}

// Has reports whether the list contains the kind of an owner, in any version.
func (o PodOwners) Has(owner *metav1.OwnerReference) bool { return slices.Contains(o, PodOwner(owner)) }

// PodOwner returns the kind of an owner in the form of such a list.
func PodOwner(owner *metav1.OwnerReference) string {
	if group := schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).Group; group != "" {
		return group + "/" + owner.Kind
	}
	return owner.Kind
}
