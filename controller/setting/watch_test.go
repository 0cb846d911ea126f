package setting

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/longhorn-lep/longhorn-manager/datastore"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// watchedDefaults signals each sync, which reads the ConfigMap first, and has the handler of its events.
type watchedDefaults struct {
	handler cache.ResourceEventHandler
	read    chan struct{}
	over    <-chan struct{} // no receiver is left
}

// GetRO fails, so the queue retries after a while.
func (w *watchedDefaults) GetRO(string) (*corev1.ConfigMap, error) {
	select {
	case w.read <- struct{}{}:
	case <-w.over:
	}
	return nil, errors.New("that is enough")
}

func (w *watchedDefaults) AddHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	w.handler = h
	return nil, nil
}

// TestAChangeOfTheConfigMapReachesEverySetting: a change causes a sync of every setting, and of the ConfigMap
// itself.
func TestAChangeOfTheConfigMapReachesEverySetting(t *testing.T) {
	h := testutil.New(t)
	d := h.Datastore(datastore.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	watched := &watchedDefaults{read: make(chan struct{}), over: ctx.Done()}
	c, err := New(Deps{Namespace: types.Namespace, Settings: d.Settings, Defaults: watched, Env: h.Env(), Pods: d.Pods})
	require.NoError(t, err)
	over := make(chan error, 1)
	go func() { over <- c.Run(ctx) }()
	all := func() {
		for range allKeys() {
			<-watched.read
		}
	}
	all() // at the start
	require.NotNil(t, watched.handler, "the ConfigMap is not watched")
	was, is := build.ConfigMap("longhorn-default-setting", "default-setting.yaml", ""), build.ConfigMap("longhorn-default-setting", "default-setting.yaml", "nix: 1\n")
	was.ResourceVersion, is.ResourceVersion = "1", "2"
	watched.handler.OnUpdate(was, is)
	all()
	cancel()
	require.NoError(t, <-over)
}

// A ConfigMap that was deleted and created again between two syncs is a new object. Its user has seen no Event about
// it.
func TestProblemsAreToldAnewOfAnotherConfigMap(t *testing.T) {
	h, _, c := newController(t)
	first, second := build.ConfigMap("longhorn-default-setting", "default-setting.yaml", ""), build.ConfigMap("longhorn-default-setting", "default-setting.yaml", "")
	first.UID, second.UID = "one", "two"
	for _, tc := range []struct {
		cm   *corev1.ConfigMap
		want bool
	}{{first, true}, {first, false}, {second, true}, {second, false}, {nil, false}, {second, true}} {
		c.told = c.tell(c.told, tc.cm, []error{errors.New("nix")})
		assert.Equal(t, tc.want, len(h.Recorder.Take()) > 0)
	}
}
