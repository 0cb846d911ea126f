package sidecar

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/sirupsen/logrus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/record"
)

// capacityInterval is how often capacities asks the driver how large volumes may be. The figures with which Kubernetes
// schedules are at most that old.
const capacityInterval = time.Minute

// The labels by which CSIStorageCapacity objects are found again, as in the usual sidecar.
const (
	labelCapacityDriver  = "csi.storage.k8s.io/drivername"
	labelCapacityManager = "csi.storage.k8s.io/managed-by"
	capacityManager      = "longhorn-csi-controller"
)

// paramDataLocality of a StorageClass decides whether the figure depends on the node.
const (
	paramDataLocality = "dataLocality"
	localityStrict    = "strict-local"
)

// capacities publishes how large the volumes of a StorageClass may be, as CSIStorageCapacity objects. It does so while
// the driver's CSIDriver says that Kubernetes reads them (spec.storageCapacity), and removes them otherwise.
//
// There is one object for each node that has the driver and each class with volumeBindingMode WaitForFirstConsumer.
// Kubernetes uses no others: a claim of another class gets its volume before its pod has a node.
//
//	dataLocality of the class    the figure
//	disabled, best-effort        the same for all nodes: each node can use a volume, wherever its replicas are
//	strict-local, or omitted     the node's own
type capacities struct {
	kube       kubernetes.Interface
	driver     csipb.ControllerClient
	driverName string
	namespace  string
	classes    storagelisters.StorageClassLister
	csiNodes   storagelisters.CSINodeLister
	recorder   record.EventRecorder
	log        *logrus.Entry

	// lastMessages has the text of the last Event of each class.
	lastMessages map[string]string
}

// eventCapacityNotPublished is the reason of the Event of a StorageClass with figures that cannot be published. Until
// they are published, Kubernetes finds no node for pods that wait for a volume of the class.
const eventCapacityNotPublished = "CapacityNotPublished"

// run publishes until ctx is done. A failed write is repeated in the next round.
func (c *capacities) run(ctx context.Context) {
	next := time.NewTicker(capacityInterval)
	defer next.Stop()
	for {
		if err := c.sync(ctx); err != nil && ctx.Err() == nil {
			c.log.WithError(err).Warn("Cannot publish the storage capacity; trying again")
		}
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		}
	}
}

// sync creates, updates and deletes the objects. If the driver does not answer for an object, the object stays
// unchanged.
func (c *capacities) sync(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	driver, err := c.kube.StorageV1().CSIDrivers().Get(ctx, c.driverName, metav1.GetOptions{})
	switch {
	// manifests of an earlier release give no right to read it, and have no capacity tracking
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return nil
	case err != nil:
		return fmt.Errorf("read CSIDriver %s: %w", c.driverName, err)
	}
	isOn := driver.Spec.StorageCapacity != nil && *driver.Spec.StorageCapacity
	list, err := c.kube.StorageV1().CSIStorageCapacities(c.namespace).List(ctx, metav1.ListOptions{LabelSelector: labels.SelectorFromSet(c.labels()).String()})
	if err != nil {
		return fmt.Errorf("list storage capacities: %w", err)
	}
	var errs []error
	surplus := map[string]*storagev1.CSIStorageCapacity{}
	for i := range list.Items {
		surplus[list.Items[i].Name] = &list.Items[i]
	}
	if isOn {
		wanted, err := c.segments(ctx)
		if err != nil {
			return err
		}
		failed := c.publishAll(ctx, wanted, surplus)
		c.report(failed)
		for _, f := range failed {
			errs = append(errs, f.err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(surplus)) {
		err := c.kube.StorageV1().CSIStorageCapacities(c.namespace).Delete(ctx, name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("delete storage capacity %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// failure is why the figures of a class are not published.
type failure struct {
	class *storagev1.StorageClass
	err   error
}

// publishAll publishes the figures of segments, removes their objects from surplus, and returns the first failure of
// each class.
func (c *capacities) publishAll(ctx context.Context, wanted []segment, surplus map[string]*storagev1.CSIStorageCapacity) []failure {
	sizes := capacityAnswers{}
	var failed []failure
	for _, s := range wanted {
		err := c.publish(ctx, s, surplus[s.name()], sizes)
		delete(surplus, s.name())
		if err != nil && !slices.ContainsFunc(failed, func(f failure) bool { return f.class.Name == s.class.Name }) {
			failed = append(failed, failure{s.class, err})
		}
	}
	return failed
}

// report records an Event for each class with figures that the API server refuses, once until the text changes.
func (c *capacities) report(failed []failure) {
	messages := map[string]string{}
	for _, f := range failed {
		if status := apierrors.APIStatus(nil); !errors.As(f.err, &status) {
			continue // a network error, or the end of the call's time
		}
		message := f.err.Error()
		if messages[f.class.Name] = message; c.lastMessages[f.class.Name] != message {
			c.recorder.Event(f.class, corev1.EventTypeWarning, eventCapacityNotPublished, message)
		}
	}
	c.lastMessages = messages
}

func (c *capacities) labels() map[string]string {
	return map[string]string{labelCapacityDriver: c.driverName, labelCapacityManager: capacityManager}
}

// segment is a StorageClass on a node.
type segment struct {
	class *storagev1.StorageClass
	node  string // the driver's name for it
	host  string // the node's label kubernetes.io/hostname
}

// name is the same for the same class and node, so that no object is created twice.
func (s segment) name() string {
	sum := sha256.Sum256([]byte(s.class.Name + "/" + s.node))
	return "longhorn-" + hex.EncodeToString(sum[:10])
}

// selector matches the node of a segment.
func (s segment) selector() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelHostname: s.host}}
}

// query is the question to the driver for a segment: the class, and the node if it matters.
func (s segment) query() capacityQuery {
	switch s.class.Parameters[paramDataLocality] {
	case "disabled", "best-effort":
		return capacityQuery{class: s.class.Name}
	}
	return capacityQuery{class: s.class.Name, node: s.node}
}

type capacityQuery struct{ class, node string }

// capacityAnswers are the answers of one round; nil: the driver gave none.
type capacityAnswers map[capacityQuery]*csipb.GetCapacityResponse

// refused is the figure for a class with refused parameters. With a smaller figure, Kubernetes would give the pod no
// node because of lack of space, and no user would learn about the parameters. With this one, the pod gets a node, and
// its claim an Event with the refusal.
var refused = &csipb.GetCapacityResponse{AvailableCapacity: math.MaxInt64}

// segments are all segments that need figures.
func (c *capacities) segments(ctx context.Context) ([]segment, error) {
	classes, err := c.classes.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	classes = slices.DeleteFunc(slices.Clone(classes), func(class *storagev1.StorageClass) bool {
		return class.Provisioner != c.driverName || !bindsLate(class)
	})
	if len(classes) == 0 {
		return nil, nil
	}
	nodes, err := c.nodes(ctx) // for no class
	if err != nil {
		return nil, err
	}
	var segments []segment
	for _, class := range classes {
		for _, n := range nodes {
			n.class = class
			segments = append(segments, n)
		}
	}
	// The order makes a class's first failure the same each time, so its Event is sent once: the caches have no order.
	slices.SortFunc(segments, func(a, b segment) int { return strings.Compare(a.name(), b.name()) })
	return segments, nil
}

// nodes are the nodes that have the driver and the label kubernetes.io/hostname.
func (c *capacities) nodes(ctx context.Context) ([]segment, error) {
	csiNodes, err := c.csiNodes.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	list, err := c.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	hosts := map[string]string{}
	for i := range list.Items {
		hosts[list.Items[i].Name] = list.Items[i].Labels[corev1.LabelHostname]
	}
	var nodes []segment
	for _, n := range csiNodes {
		for _, d := range n.Spec.Drivers {
			if d.Name == c.driverName && hosts[n.Name] != "" {
				nodes = append(nodes, segment{node: d.NodeID, host: hosts[n.Name]})
			}
		}
	}
	return nodes, nil
}

// ask returns the driver's answer for a segment, or nil if the driver gives none.
func (c *capacities) ask(ctx context.Context, s segment, sizes capacityAnswers) *csipb.GetCapacityResponse {
	q := s.query()
	if answer, asked := sizes[q]; asked {
		return answer
	}
	sizes[q] = nil
	parameters, err := readParameters(s.class.Parameters)
	if err != nil {
		sizes[q] = refused
		return refused
	}
	request := &csipb.GetCapacityRequest{Parameters: parameters.driver}
	if q.node != "" {
		request.AccessibleTopology = &csipb.Topology{Segments: map[string]string{corev1.LabelHostname: q.node}}
	}
	answer, err := c.driver.GetCapacity(ctx, request)
	switch {
	case status.Code(err) == codes.InvalidArgument:
		answer = refused
	case err != nil:
		c.log.WithError(err).WithField("class", s.class.Name).Warn("The driver did not report how large a volume of the class may be")
		return nil
	}
	sizes[q] = answer
	return answer
}

// publish writes the object if the driver's answer differs from it; have is nil if the object does not exist.
func (c *capacities) publish(ctx context.Context, s segment, have *storagev1.CSIStorageCapacity, sizes capacityAnswers) (err error) {
	answer := c.ask(ctx, s, sizes)
	if answer == nil {
		return nil
	}
	want := &storagev1.CSIStorageCapacity{
		ObjectMeta:       metav1.ObjectMeta{Namespace: c.namespace, Name: s.name(), Labels: c.labels()},
		NodeTopology:     s.selector(),
		StorageClassName: s.class.Name,
		Capacity:         resource.NewQuantity(answer.GetAvailableCapacity(), resource.BinarySI),
	}
	if most := answer.GetMaximumVolumeSize(); most != nil {
		want.MaximumVolumeSize = resource.NewQuantity(most.GetValue(), resource.BinarySI)
	}
	store := c.kube.StorageV1().CSIStorageCapacities(c.namespace)
	// The class and the nodes of an object cannot change.
	if have != nil && (have.StorageClassName != want.StorageClassName || !equality.Semantic.DeepEqual(have.NodeTopology, want.NodeTopology)) {
		if err := store.Delete(ctx, have.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete storage capacity %s: %w", have.Name, err)
		}
		have = nil
	}
	switch {
	case have == nil:
		_, err = store.Create(ctx, want, metav1.CreateOptions{})
	case !equality.Semantic.DeepEqual(have.Capacity, want.Capacity) || !equality.Semantic.DeepEqual(have.MaximumVolumeSize, want.MaximumVolumeSize):
		want.ResourceVersion = have.ResourceVersion
		_, err = store.Update(ctx, want, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("publish storage capacity %s of class %s: %w", want.Name, s.class.Name, err)
	}
	return nil
}
