package app

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/sirupsen/logrus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/longhorn-lep/longhorn-manager/app/trust"
	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	"github.com/longhorn-lep/longhorn-manager/datastore"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
)

// isTrustedNetwork reports whether the REST API requires no credential. The default is that it requires one.
func isTrustedNetwork(store *datastore.Datastore) bool {
	return store.Setting(settings.RESTTrustedNetwork) == "true"
}

// decideTrustedNetwork creates the setting if it does not exist. The value is true in an installation of an earlier
// release, whose clients have no credential, and false in a new installation. The leader must call it before its
// setting controller runs. Then the first leader of a new installation finds no setting that another leader has
// processed, although users and daemons may have created settings and nodes.
func decideTrustedNetwork(ctx context.Context, store *datastore.Datastore, namespace string, log *logrus.Entry) error {
	_, err := store.Settings.GetRO(string(settings.RESTTrustedNetwork))
	if !apierrors.IsNotFound(err) {
		return err
	}
	stored, err := store.Settings.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list settings: %w", err)
	}
	volumes, err := store.Volumes.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list volumes: %w", err)
	}
	isProcessed := func(s *longhorn.Setting) bool { return len(s.Status.Conditions) > 0 }
	upgraded := len(volumes) > 0 || slices.ContainsFunc(stored, isProcessed)
	_, err = store.Settings.Create(ctx, &longhorn.Setting{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: string(settings.RESTTrustedNetwork)}, Value: strconv.FormatBool(upgraded),
	})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create setting %s: %w", settings.RESTTrustedNetwork, err)
	}
	log.WithField("value", upgraded).Infof("Created setting %s", settings.RESTTrustedNetwork)
	return nil
}

// definitionsTimeout is how long the leader waits for the definitions of this release. They are the last part of a
// manifest that is being applied.
const (
	definitionsTimeout  = time.Minute
	definitionsInterval = 2 * time.Second
)

// decideTrustedNetwork calls the function of the same name, and retries while the API server refuses the setting.
// Either the definition of settings is of an earlier release, which does not know the setting, or a quota, a policy
// or a webhook refuses it. If the refusal lasts, the leader works without the setting, and the API requires
// credentials: nothing else waits for the setting. There is no object yet for an Event. The controller of settings
// retries, and its Event is about the ConfigMap longhorn-default-setting.
func (d *daemon) decideTrustedNetwork(ctx context.Context, store *datastore.Datastore) error {
	end := d.env.Clock.Now().Add(definitionsTimeout)
	for {
		err := decideTrustedNetwork(ctx, store, d.namespace, d.env.Log)
		if queue.ChildRefusal(queue.OfChild(err)) == "" {
			return err
		}
		if !d.env.Clock.Now().Before(end) {
			d.env.Log.WithError(err).Warn("The API server refuses the setting " + string(settings.RESTTrustedNetwork) +
				", so the REST API requires credentials; if the CRDs are of an earlier version, apply the manifest of this version")
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-d.env.Clock.After(definitionsInterval):
		}
	}
}

// newAuthority returns the Authority, which creates the daemons' certificates with the account of the leader.
func (d *daemon) newAuthority(store *datastore.Datastore) *trust.Authority {
	return &trust.Authority{
		Kube: d.clients.kube, Namespace: d.namespace, Trusted: func() bool { return isTrustedNetwork(store) },
		Clock: d.env.Clock, Recorder: d.env.Recorder, Log: d.env.Log,
	}
}
