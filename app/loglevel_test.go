package app

import (
	"context"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func TestLogLevel(t *testing.T) {
	for value, want := range map[string]logrus.Level{
		"": logrus.WarnLevel, "Info": logrus.WarnLevel, "Debug": logrus.DebugLevel, "Error": logrus.ErrorLevel, "Trace": logrus.TraceLevel, "loud": logrus.WarnLevel,
	} {
		assert.Equal(t, want, logLevel(value, logrus.WarnLevel), value)
	}
	d, ok := settings.DefinitionOf(settings.LogLevel)
	require.True(t, ok)
	for _, option := range d.Options {
		_, err := logrus.ParseLevel(option)
		assert.NoError(t, err, option)
	}
}

// TestTheLogFollowsTheSetting: with the default value, the log has the flag's level again.
func TestTheLogFollowsTheSetting(t *testing.T) {
	h := testutil.New(t, build.Setting(settings.LogLevel, "Debug"))
	ctx, cancel := context.WithCancel(t.Context())
	store := datastore.New(datastore.Options{Kube: h.Kube, Longhorn: h.Longhorn, Namespace: types.Namespace, Kinds: []datastore.Kind{datastore.Settings}})
	store.Start(ctx)
	require.NoError(t, store.WaitForSync(ctx))
	log := logrus.New()
	ended := make(chan error, 1)
	go func() { ended <- followLogLevel(ctx, store, log) }()
	has := func(level logrus.Level) {
		t.Helper()
		require.Eventually(t, func() bool { return log.GetLevel() == level }, time.Minute, time.Millisecond)
	}
	has(logrus.DebugLevel)
	client := h.Longhorn.LonghornV1beta2().Settings(types.Namespace)
	s, err := client.Get(ctx, string(settings.LogLevel), metav1.GetOptions{})
	require.NoError(t, err)
	s.Value = "Error"
	_, err = client.Update(ctx, s, metav1.UpdateOptions{})
	require.NoError(t, err)
	has(logrus.ErrorLevel)
	require.NoError(t, client.Delete(ctx, s.Name, metav1.DeleteOptions{}))
	has(logrus.InfoLevel)
	cancel()
	require.NoError(t, <-ended)
	store.Wait()
}
