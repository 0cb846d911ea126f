package trust

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/longhorn-lep/longhorn-manager/controller/queue"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

const (
	// publishEvery is the interval at which the leader checks the certificates and the published mode.
	publishEvery = 15 * time.Second
	// warnEvery is the interval of the Events that say that trusted-network mode is on. Kubernetes deletes Events
	// after an hour.
	warnEvery = 50 * time.Minute
)

// Authority creates the daemons' certificate, replaces it in time, and publishes the information that clients need.
// It runs in the leader.
type Authority struct {
	Kube      kubernetes.Interface
	Namespace string
	// Trusted reports whether trusted-network mode is on.
	Trusted  func() bool
	Clock    clock.WithTicker
	Recorder record.EventRecorder
	Log      *logrus.Entry

	refusals   queue.Refusals[string]
	isReported bool      // an Event said that the mode is on
	reportedAt time.Time // time of the last such Event
}

// Run maintains the certificates and the ConfigMap until ctx ends. It logs errors and retries.
func (a *Authority) Run(ctx context.Context) error {
	ticker := a.Clock.NewTicker(publishEvery)
	defer ticker.Stop()
	for {
		err := a.Publish(ctx)
		if err != nil && ctx.Err() == nil {
			a.Log.WithError(err).Error("The REST API's certificates could not be updated")
		}
		if a.refusals.Tried(a.Namespace, err, a.Clock.Now()) {
			a.Recorder.Event(a.setting(), corev1.EventTypeWarning, types.ReasonChildRefused, "REST clients cannot trust the daemons: "+queue.ChildRefusal(err))
		}
		a.reportMode()
		select {
		case <-ticker.C():
		case <-ctx.Done():
			return nil
		}
	}
}

// Publish updates the Secret and the ConfigMap once. It can be repeated after a crash at any line, because it writes
// the Secret first and derives the ConfigMap from it.
func (a *Authority) Publish(ctx context.Context) error {
	data, err := a.ensureSecret(ctx)
	if err != nil {
		return fmt.Errorf("keep Secret %s: %w", types.APITLSSecret, err)
	}
	err = a.ensureConfigMap(ctx, map[string]string{
		types.APICAKey: string(data[types.APICAKey]), types.APITrustedKey: strconv.FormatBool(a.Trusted()),
	})
	if err != nil {
		return fmt.Errorf("keep ConfigMap %s: %w", types.APICAConfigMap, err)
	}
	return nil
}

// ensureSecret updates the Secret and returns its data.
func (a *Authority) ensureSecret(ctx context.Context) (map[string][]byte, error) {
	secrets := a.Kube.CoreV1().Secrets(a.Namespace)
	secret, err := secrets.Get(ctx, types.APITLSSecret, metav1.GetOptions{})
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return nil, err
	}
	if missing {
		secret = &corev1.Secret{ObjectMeta: a.meta(types.APITLSSecret)}
	}
	now := a.Clock.Now()
	data, err := renewed(secret.Data, now, func() (pair, error) { return newPair(a.Namespace, now) })
	if err != nil {
		return nil, err
	}
	if !missing && maps.EqualFunc(data, secret.Data, bytes.Equal) {
		return data, nil
	}
	secret.Data = data
	if missing {
		_, err = secrets.Create(ctx, secret, metav1.CreateOptions{})
	} else {
		_, err = secrets.Update(ctx, secret, metav1.UpdateOptions{}) // fails if the version that was read has changed
	}
	if err == nil {
		a.Log.Info("Changed the certificates of the REST API")
	}
	return data, queue.OfChild(err)
}

func (a *Authority) ensureConfigMap(ctx context.Context, data map[string]string) error {
	configMaps := a.Kube.CoreV1().ConfigMaps(a.Namespace)
	published, err := configMaps.Get(ctx, types.APICAConfigMap, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = configMaps.Create(ctx, &corev1.ConfigMap{ObjectMeta: a.meta(types.APICAConfigMap), Data: data}, metav1.CreateOptions{})
		return queue.OfChild(err)
	}
	if err != nil || maps.Equal(published.Data, data) {
		return err
	}
	published.Data = data
	_, err = configMaps.Update(ctx, published, metav1.UpdateOptions{})
	return queue.OfChild(err)
}

func (a *Authority) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: name, Namespace: a.Namespace,
		Labels: map[string]string{types.InstallationLabel: types.InstallationValue},
	}
}

// setting returns the object of the Events: the setting rest-trusted-network.
func (a *Authority) setting() *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: longhorn.SchemeGroupVersion.String(), Kind: "Setting", Namespace: a.Namespace, Name: string(settings.RESTTrustedNetwork),
	}
}

// reportMode records Events: repeatedly while the mode is on, and once when it is off again.
func (a *Authority) reportMode() {
	setting, now := a.setting(), a.Clock.Now()
	switch on := a.Trusted(); {
	case on && (!a.isReported || now.Sub(a.reportedAt) >= warnEvery):
		a.Recorder.Event(setting, corev1.EventTypeWarning, types.EventTrustedNetwork,
			"the REST API answers requests without a credential: any client that reaches port 9500 can delete volumes; set the value to false when no client of an earlier release is left")
		a.isReported, a.reportedAt = true, now
	case !on && a.isReported:
		a.Recorder.Event(setting, corev1.EventTypeNormal, types.EventTrustedNetwork, "the REST API requires a credential again")
		a.isReported = false
	}
}
