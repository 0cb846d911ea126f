package types

import (
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestParsePodOwners(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		want       PodOwners
		err        string
	}{
		{name: "empty → none"},
		{name: "one → itself", text: "apps/StatefulSet", want: PodOwners{"apps/StatefulSet"}},
		{name: "several with spaces and an end → each", text: "apps/StatefulSet; apps/DaemonSet ;", want: PodOwners{"apps/StatefulSet", "apps/DaemonSet"}},
		{name: "of the core group → without a group", text: "ReplicationController", want: PodOwners{"ReplicationController"}},
		{
			name: "separated by commas → refused", text: "apps/StatefulSet,apps/DaemonSet",
			err: `has the entry "apps/StatefulSet,apps/DaemonSet"; each entry must be GROUP/KIND, as apps/StatefulSet, and entries are separated by semicolons`,
		},
		{name: "no kind → refused", text: "apps/", err: `has the entry "apps/"; each entry must be GROUP/KIND, as apps/StatefulSet, and entries are separated by semicolons`},
		{name: "no group before a slash → refused", text: "/Pod", err: `has the entry "/Pod"; each entry must be GROUP/KIND, as apps/StatefulSet, and entries are separated by semicolons`},
		{name: "with a version → refused", text: "apps/v1/Job", err: `has the entry "apps/v1/Job"; each entry must be GROUP/KIND, as apps/StatefulSet, and entries are separated by semicolons`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := ParsePodOwners(tc.text)
			if tc.err != "" {
				assert.EqualError(t, err, tc.err)
				return
			}
			assert.NoError(t, err)
			assert.Equal(t, tc.want, got)
		})
	}
}

func TestPodOwnersHave(t *testing.T) {
	owners := PodOwners{"apps/StatefulSet", "ReplicationController"}
	for _, tc := range []struct {
		name, version, kind string
		want                bool
	}{
		{"the kind of the group → named", "apps/v1", "StatefulSet", true},
		{"another version → named", "apps/v2", "StatefulSet", true},
		{"another group → not named", "example.com/v1", "StatefulSet", false},
		{"another kind → not named", "apps/v1", "ReplicaSet", false},
		{"of the core group → named", "v1", "ReplicationController", true},
	} {
		assert.Equal(t, tc.want, owners.Has(&metav1.OwnerReference{APIVersion: tc.version, Kind: tc.kind}), tc.name)
	}
}
