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
	"github.com/longhorn-lep/longhorn-manager/types"
)

const (
	// publishEvery is how often the leader looks whether certificates and the published mode are as they must be.
	publishEvery = 15 * time.Second
	// warnEvery is how often an Event repeats that trusted-network mode is on: Events are kept for an hour.
	warnEvery = 50 * time.Minute
)

// Authority makes the daemons' certificate, replaces it in time, and publishes what clients must know. It runs in the leader.
type Authority struct {
	Kube      kubernetes.Interface
	Namespace string
	// Trusted tells whether trusted-network mode is on.
	Trusted  func() bool
	Clock    clock.WithTicker
	Recorder record.EventRecorder
	Log      *logrus.Entry

	refusals queue.Refusals[string]
	told     bool      // an Event said that the mode is on
	toldWhen time.Time // when the last one said so
}

// Run keeps certificates and the ConfigMap until ctx ends. What fails is logged and tried again.
func (a *Authority) Run(ctx context.Context) error {
	ticker := a.Clock.NewTicker(publishEvery)
	defer ticker.Stop()
	for {
		err := a.Publish(ctx)
		if err != nil && ctx.Err() == nil {
			a.Log.WithError(err).Error("The REST API's certificates could not be brought up to date")
		}
		if a.refusals.Tried(a.Namespace, err, a.Clock.Now()) {
			a.Recorder.Event(a.setting(), corev1.EventTypeWarning, types.ReasonChildRefused, "REST clients cannot trust the daemons: "+queue.ChildRefusal(err))
		}
		a.tell()
		select {
		case <-ticker.C():
		case <-ctx.Done():
			return nil
		}
	}
}

// Publish brings Secret and ConfigMap up to date once. It may be repeated after a crash at any line: the Secret is written first, and
// the ConfigMap follows from it.
func (a *Authority) Publish(ctx context.Context) error {
	data, err := a.keepSecret(ctx)
	if err != nil {
		return fmt.Errorf("keep Secret %s: %w", types.APITLSSecret, err)
	}
	err = a.keepConfigMap(ctx, map[string]string{
		types.APICAKey: string(data[types.APICAKey]), types.APITrustedKey: strconv.FormatBool(a.Trusted()),
	})
	if err != nil {
		return fmt.Errorf("keep ConfigMap %s: %w", types.APICAConfigMap, err)
	}
	return nil
}

// keepSecret returns the Secret's data.
func (a *Authority) keepSecret(ctx context.Context) (map[string][]byte, error) {
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
		_, err = secrets.Update(ctx, secret, metav1.UpdateOptions{}) // of the version that was read
	}
	if err == nil {
		a.Log.Info("Changed the certificates of the REST API")
	}
	return data, queue.OfChild(err)
}

func (a *Authority) keepConfigMap(ctx context.Context, data map[string]string) error {
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

// setting is what Events are about: the setting of who is trusted.
func (a *Authority) setting() *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: longhorn.SchemeGroupVersion.String(), Kind: "Setting", Namespace: a.Namespace, Name: string(types.SettingRESTTrustedNetwork),
	}
}

// tell says by Events that the mode is on, again and again, and once that it is off.
func (a *Authority) tell() {
	about, now := a.setting(), a.Clock.Now()
	switch on := a.Trusted(); {
	case on && (!a.told || now.Sub(a.toldWhen) >= warnEvery):
		a.Recorder.Event(about, corev1.EventTypeWarning, types.EventTrustedNetwork,
			"the REST API answers requests without a credential: whoever reaches port 9500 may delete volumes; set it to false when no client of an earlier release is left")
		a.told, a.toldWhen = true, now
	case !on && a.told:
		a.Recorder.Event(about, corev1.EventTypeNormal, types.EventTrustedNetwork, "the REST API asks for a credential again")
		a.told = false
	}
}
