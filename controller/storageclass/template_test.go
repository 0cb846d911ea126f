package storageclass

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
)

func template(text string) *corev1.ConfigMap {
	return build.ConfigMap("longhorn-default-storageclass", "storageclass.yaml", text)
}

// config is the ConfigMap with a text, created from the template when the template had the text `from`.
func config(text, from string) *corev1.ConfigMap {
	cm := build.ConfigMap("longhorn-storageclass", "storageclass.yaml", text)
	if from != "" {
		cm.Annotations = map[string]string{"longhorn.io/template-sha256": sum(from), "of-another": "x"}
	}
	return cm
}

func TestWhenTheConfigMapFollowsItsTemplate(t *testing.T) {
	deleted := config(two, two)
	deleted.DeletionTimestamp = &metav1.Time{Time: testutil.Now}
	emptied := config(two, two)
	emptied.Data = nil
	for _, tc := range []struct {
		name              string
		template, present *corev1.ConfigMap
		want              string // the written text; "": none
	}{
		{"there is none, and a template → made", template(two), nil, two},
		{"neither is there → nothing", nil, nil, ""},
		{"the template has no text → nothing", template(" \n"), nil, ""},
		{"made of it, as it is now → stays", template(two), config(two, two), ""},
		{"made of it, which has another text now → gets that", template(three), config(two, two), three},
		{"made of it, and changed since → stays", template(small), config(three, two), ""},
		{"made of it, and emptied since → stays", template(three), emptied, ""},
		{"made of it, and brought to the next text by hand → stays", template(three), config(three, two), ""},
		{"of an earlier manifest, which had no template → stays", template(three), config(two, ""), ""},
		{"the template is gone → stays", nil, config(two, two), ""},
		{"it is being deleted → stays", template(three), deleted, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			next := fromTemplate(tc.template, tc.present)
			if tc.want == "" {
				assert.Nil(t, next)
				return
			}
			require.NotNil(t, next)
			assert.Equal(t, "longhorn-storageclass", next.Name)
			assert.Equal(t, "longhorn-system", next.Namespace)
			assert.Equal(t, tc.want, next.Data["storageclass.yaml"])
			assert.True(t, isUnchanged(next), "it follows the next template as well")
			if tc.present != nil {
				assert.Equal(t, "x", next.Annotations["of-another"])
				assert.Equal(t, two, tc.present.Data["storageclass.yaml"], "what the cache showed is left as it is")
			} else {
				assert.Equal(t, map[string]string{"longhorn.io/installation": "lep"}, next.Labels)
			}
		})
	}
}

func TestAnUpgradeKeepsWhatPeopleWroteInTheConfigMap(t *testing.T) {
	const made, updated = "create configmaps/longhorn-storageclass", "update configmaps/longhorn-storageclass"
	f := newFixture(t, two, template(two))
	require.NoError(t, f.store.StorageClassConfig.Delete(t.Context(), "longhorn-storageclass", datastore.Preconditions{}))
	f.CatchUp()
	f.Writes()

	require.NoError(t, f.syncs(t)) // the first installation
	f.ExpectWrites(made, "create storageclasses/longhorn")
	require.NoError(t, f.syncs(t))
	f.ExpectWrites()

	f.Overwrite(template(three)) // an upgrade
	result, err := f.sync(t.Context(), "longhorn-storageclass")
	require.NoError(t, err)
	assert.Equal(t, templateInterval, result.RequeueAfter)
	f.CatchUp()
	assert.Contains(t, f.Writes(), updated)
	assert.Equal(t, "3", f.live(t).Parameters["numberOfReplicas"])

	cm, err := f.store.StorageClassConfig.Live(t.Context(), "longhorn-storageclass")
	require.NoError(t, err)
	cm.Data["storageclass.yaml"] = two // a user
	f.Overwrite(cm)
	f.CatchUp()
	require.NoError(t, f.syncs(t))
	f.Overwrite(template(small)) // an upgrade
	f.Writes()
	require.NoError(t, f.syncs(t))
	f.ExpectWrites()
	assert.Equal(t, "2", f.live(t).Parameters["numberOfReplicas"])
}

func TestATemplateThatCannotBeRead(t *testing.T) {
	group := schema.GroupResource{Resource: "configmaps"}
	t.Run("by the rights of an earlier manifest → what is there is followed", func(t *testing.T) {
		f := newFixture(t, two)
		f.Overwrite(config(two, two))
		f.CatchUp()
		f.Fail("get", "configmaps", apierrors.NewForbidden(group, "longhorn-default-storageclass", nil))
		require.NoError(t, f.syncs(t))
		f.ExpectWrites("create storageclasses/longhorn")
	})
	t.Run("the API server does not answer → tried again", func(t *testing.T) {
		f := newFixture(t, two)
		f.Overwrite(config(two, two))
		f.CatchUp()
		away := errors.New("away")
		f.Fail("get", "configmaps", away)
		require.ErrorIs(t, f.syncs(t), away)
		f.ExpectWrites()
	})
	t.Run("the ConfigMap is of an earlier manifest → it is not asked for", func(t *testing.T) {
		f := newFixture(t, two, template(three))
		f.Fail("get", "configmaps", errors.New("away"))
		require.NoError(t, f.syncs(t))
		f.ExpectWrites("create storageclasses/longhorn")
		assert.Equal(t, "2", f.live(t).Parameters["numberOfReplicas"])
	})
}

func TestATextThatCannotBeBroughtToTheTemplatesIsFollowed(t *testing.T) {
	f := newFixture(t, two, template(three))
	f.Overwrite(config(two, two))
	f.CatchUp()
	f.Fail("update", "configmaps", apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "longhorn-storageclass", nil))
	require.True(t, apierrors.IsForbidden(f.syncs(t)), "it is tried again")
	assert.Equal(t, "2", f.live(t).Parameters["numberOfReplicas"])
}

func TestAConfigMapThatTheCacheDoesNotShowIsNotReplaced(t *testing.T) {
	f := newFixture(t, two, template(three))
	require.NoError(t, f.store.StorageClassConfig.Delete(t.Context(), "longhorn-storageclass", datastore.Preconditions{}))
	f.CatchUp()
	f.Seed(config(two, "")) // a user created it, and the cache is late
	_, err := f.sync(t.Context(), "longhorn-storageclass")
	require.True(t, apierrors.IsAlreadyExists(err))
	f.CatchUp()
	require.NoError(t, f.syncs(t))
	assert.Equal(t, "2", f.live(t).Parameters["numberOfReplicas"])
}
