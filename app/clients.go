package app

import (
	"context"
	"fmt"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	kubescheme "k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/record"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/k8s/client/clientset/versioned"
	"github.com/longhorn-lep/longhorn-manager/util/apigate"
)

// clients are the clients of the API server.
type clients struct {
	config   *rest.Config
	kube     kubernetes.Interface
	longhorn versioned.Interface
	metadata metadata.Interface
	gate     *apigate.Gate // through which requests go; nil: none
}

// newClients uses the pod's service account, or a kubeconfig if one is named. Requests wait while the API server is
// unavailable. ctx is the context of the process.
func newClients(ctx context.Context, kubeconfig string, log *logrus.Entry) (*clients, error) {
	setPings(log) // before the first connection
	config, err := configOf(kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = 50, 100
	config.WarningHandlerWithContext = warnings{log}
	look, err := newAPICheck(config)
	if err != nil {
		return nil, err
	}
	gate := apigate.New(ctx, look, log)
	config.Wrap(gate.Wrap)
	config.Wrap(withDeadlines) // outside the gate, so that the deadline includes the wait for the gate
	c, err := clientsOf(config)
	if err != nil {
		return nil, err
	}
	c.gate = gate
	return c, nil
}

// configOf reads the pod's service account, or a kubeconfig if one is named. clientcmd alone would first log a warning
// for the service account.
func configOf(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("configure the API client: %w; outside a cluster, name a file with --kubeconfig", err)
		}
		return config, nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("configure the API client: %w", err)
	}
	return config, nil
}

// clientsOf creates the clients of one account.
func clientsOf(config *rest.Config) (*clients, error) {
	c := &clients{config: config}
	var err error
	if c.kube, err = kubernetes.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("create the Kubernetes client: %w", err)
	}
	if c.longhorn, err = versioned.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("create the %s client: %w", longhorn.GroupName, err)
	}
	if c.metadata, err = metadata.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("create the metadata client: %w", err)
	}
	return c, nil
}

// until creates clients like c that send no request after life has ended, because another process may lead then.
func (c *clients) until(life context.Context) (*clients, error) {
	return clientsUntil(life, rest.CopyConfig(c.config))
}

// clientsUntil is like clientsOf, but the clients send no request after life has ended.
func clientsUntil(life context.Context, config *rest.Config) (*clients, error) {
	config.Wrap(apigate.Until(life))
	return clientsOf(config)
}

// warnings logs the API server's warnings about requests. One of them is that the finalizer's name, which Longhorn's
// users know, should contain a slash.
type warnings struct{ log *logrus.Entry }

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext.
func (w warnings) HandleWarningHeaderWithContext(_ context.Context, code int, _, text string) {
	if code == warningCode && text != "" {
		w.log.Debugf("the API server warns: %s", text)
	}
}

// warningCode is the code for miscellaneous persistent warnings (RFC 7234 section 5.5.7), the only code that the API
// server sends.
const warningCode = 299

// newRecorder returns a recorder of Events about objects of Kubernetes and of Longhorn. Call the returned function to
// stop it.
func newRecorder(c *clients, component, node string, log *logrus.Entry) (record.EventRecorder, func()) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{kubescheme.AddToScheme, longhorn.AddToScheme} {
		if err := add(scheme); err != nil {
			panic("BUG: add API types to a scheme: " + err.Error())
		}
	}
	broadcaster := record.NewBroadcaster()
	broadcaster.StartLogging(log.Debugf)
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: c.kube.CoreV1().Events("")})
	return broadcaster.NewRecorder(scheme, corev1.EventSource{Component: component, Host: node}), broadcaster.Shutdown
}
