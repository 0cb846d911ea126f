package sidecar

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"
	"github.com/kubernetes-csi/external-attacher/v4/pkg/attacher"
	attach "github.com/kubernetes-csi/external-attacher/v4/pkg/controller"
	"github.com/kubernetes-csi/external-attacher/v4/pkg/features"
	snapshotclient "github.com/kubernetes-csi/external-snapshotter/client/v8/clientset/versioned"
	snapshotscheme "github.com/kubernetes-csi/external-snapshotter/client/v8/clientset/versioned/scheme"
	"github.com/sirupsen/logrus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	csitrans "k8s.io/csi-translation-lib"
	"k8s.io/utils/clock"
	provision "sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	"github.com/longhorn-lep/longhorn-manager/util/election"
	"github.com/longhorn-lep/longhorn-manager/util/liblog"
)

// Limits of the loops. A call to the driver may take callTimeout. The driver itself waits for at most 90 s, so that it
// can say what was not ready in time.
const (
	callTimeout     = 2 * time.Minute
	retryFirst      = time.Second
	retryMax        = time.Minute
	resync          = 10 * time.Minute
	provisionerLoad = 10
	attacherLoad    = 10
	resizerLoad     = 10
	defaultFSType   = "ext4"
	leaseDuration   = 15 * time.Second // the longest wait after a leader has died
)

// Options configure Run.
type Options struct {
	// Kube reaches the Kubernetes API.
	Kube kubernetes.Interface
	// KubeUntil creates a client for one term, which sends no request after life is done. nil: Kube is used.
	KubeUntil func(life context.Context) (kubernetes.Interface, error)
	// SnapshotsUntil creates a client of VolumeSnapshots for one term, as KubeUntil does. nil: no snapshots are taken.
	SnapshotsUntil func(life context.Context) (snapshotclient.Interface, error)
	// SnapshotInterval is how often a cluster without VolumeSnapshots is asked whether it has them now, and one with them
	// whether it still has them; 0: every 30 s.
	SnapshotInterval time.Duration
	// Endpoint is the path of the driver's CSI socket, with its controller service.
	Endpoint string
	// DriverName is the provisioner of StorageClasses and the attacher of VolumeAttachments.
	DriverName string
	// Namespace and Identity are where and under which name this process campaigns for the Lease <driver name, dots as
	// dashes>-controller. Identity must differ between processes.
	Namespace, Identity string
	// CheckParameters returns an error about a StorageClass's parameters that are for the driver. The driver checks
	// them, too, but here the message can name the class. nil: only the driver checks.
	CheckParameters func(params map[string]string) error
	// WithoutEffect lists the parameters that the driver accepts but ignores; the claim gets an Event. nil: none.
	WithoutEffect func(params map[string]string) []string
	// CompareInterval is how often the attacher compares the driver's publications with the state in Kubernetes; 0:
	// once a minute. It attaches a volume again that lost its attachment, for example by a forced detachment.
	CompareInterval time.Duration
	Log             *logrus.Entry

	// snapshots is the client of the term; nil: none.
	snapshots snapshotclient.Interface
}

const compareInterval = time.Minute

// LeaseName is the Lease for which a driver's controller processes campaign.
func LeaseName(driver string) string { return strings.ReplaceAll(driver, ".", "-") + "-controller" }

// Run campaigns until ctx is done. While it leads, it provisions, attaches, expands
// and takes snapshots. It returns nil when ctx is done
// and all work has stopped, after which another process may lead at once. If it loses the leadership, as while the API
// server is away, all work stops as well, and Run campaigns again. Each term has its own controllers and informers.
func Run(ctx context.Context, o Options) error {
	// Without this gate, attacher, resizer and snapshotter would not wait for their workers.
	err := utilfeature.DefaultMutableFeatureGate.SetFromMap(map[string]bool{string(features.ReleaseLeaderElectionOnExit): true})
	if err != nil {
		return fmt.Errorf("enabling the orderly stop of attacher, resizer and snapshotter: %w", err)
	}
	addSnapshotKinds()
	locks := newPublicationLocks()
	conn, err := grpc.NewClient("unix://"+o.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithChainUnaryInterceptor(plainErrors, locks.intercept))
	if err != nil {
		return fmt.Errorf("connecting to driver at %s: %w", o.Endpoint, err)
	}
	defer func() { _ = conn.Close() }() // no call is under way
	campaign := election.Options{
		Kube: o.Kube, Namespace: o.Namespace, Name: LeaseName(o.DriverName), Identity: o.Identity,
		Duration: leaseDuration, Log: o.Log,
	}
	return election.Run(ctx, campaign, func(ctx context.Context) error { return serve(ctx, o, conn, locks) })
}

// serve works for one term. The libraries send some requests with their own contexts, to record the objects that the
// driver has created. work waits for these requests after ctx is done. If the lease is lost, serve cancels them,
// because another process may lead soon.
func serve(ctx context.Context, o Options, conn *grpc.ClientConn, locks *publicationLocks) error {
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	defer context.AfterFunc(ctx, func() {
		if errors.Is(context.Cause(ctx), election.ErrLeadershipLost) {
			end()
		}
	})()
	if o.KubeUntil != nil {
		var err error
		if o.Kube, err = o.KubeUntil(life); err != nil {
			return err
		}
	}
	if o.SnapshotsUntil != nil {
		var err error
		if o.snapshots, err = o.SnapshotsUntil(life); err != nil {
			return err
		}
	}
	return work(ctx, o, conn, locks)
}

// addSnapshotKinds makes the kinds known to recorders of Events, of which the snapshotter's library has one.
var addSnapshotKinds = sync.OnceFunc(func() {
	if err := snapshotscheme.AddToScheme(scheme.Scheme); err != nil {
		panic("BUG: add the kinds of VolumeSnapshots to the scheme: " + err.Error())
	}
})

// work runs provisioner, attacher, resizer and snapshotter until ctx is done.
func work(ctx context.Context, o Options, conn *grpc.ClientConn, locks *publicationLocks) error {
	offered, err := capabilitiesOf(ctx, conn)
	if err != nil {
		return err
	}
	multiWriter := offered[csipb.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER]
	ctx = logr.NewContext(ctx, liblog.New(o.Log))
	factory := informers.NewSharedInformerFactory(o.Kube, resync)
	events := record.NewBroadcaster(record.WithContext(ctx))
	defer events.Shutdown()
	events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: o.Kube.CoreV1().Events("")})
	recorder := events.NewRecorder(scheme.Scheme, corev1.EventSource{Component: o.DriverName})
	provisioner := newProvisionController(ctx, o, factory, &Provisioner{
		driver: csipb.NewControllerClient(conn), driverName: o.DriverName, identity: o.Identity,
		multiWriter: multiWriter,
		attachments: factory.Storage().V1().VolumeAttachments().Lister(),
		check:       o.CheckParameters, withoutEffect: o.WithoutEffect,
		recorder: recorder,
		log:      o.Log,
	})
	unpublisher := newUnattached(o, factory, conn, locks, events.NewRecorder(scheme.Scheme, corev1.EventSource{Component: o.DriverName}))
	attachments := newAttachController(o, factory, conn, unpublisher, multiWriter)
	resizes, err := newResizeController(ctx, o, factory, conn)
	if err != nil {
		return err
	}

	attributes, err := newAttributesClasses(o, factory, recorder)
	if err != nil {
		return err
	}
	affine, err := newAffinities(o, factory, recorder)
	if err != nil {
		return err
	}
	published := &capacities{
		kube: o.Kube, driver: csipb.NewControllerClient(conn), driverName: o.DriverName, namespace: o.Namespace,
		classes: factory.Storage().V1().StorageClasses().Lister(), csiNodes: factory.Storage().V1().CSINodes().Lister(), recorder: recorder, log: o.Log,
	}

	var workers sync.WaitGroup
	provisioner.ControllerWaitGroup(&workers)
	factory.StartWithContext(ctx)
	defer factory.Shutdown()
	for kind, ok := range factory.WaitForCacheSync(ctx.Done()) {
		if !ok {
			err = fmt.Errorf("reading all %s: %w", kind, context.Cause(ctx))
		}
	}
	if err == nil { // otherwise ctx is done: each Run below returns at once and stops its queues
		o.Log.Info("Leading: provisioning, attaching and expanding volumes")
	}
	var loops sync.WaitGroup
	loops.Go(func() { provisioner.Run(ctx) })
	loops.Go(func() { attachments.Run(ctx, attacherLoad, &workers) })
	loops.Go(func() { unpublisher.run(ctx, cmp.Or(o.CompareInterval, compareInterval)) })
	if resizes != nil {
		loops.Go(func() { resizes.Run(resizerLoad, ctx, &workers) })
	}
	loops.Go(func() { attributes.run(ctx) })
	loops.Go(func() { affine.run(ctx) })
	if offered[csipb.ControllerServiceCapability_RPC_GET_CAPACITY] {
		loops.Go(func() { published.run(ctx) })
	}
	if o.snapshots != nil && offered[csipb.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT] {
		loops.Go(func() { newSnapshots(o, conn, offered, recorder).run(ctx) })
	}
	loops.Wait()
	workers.Wait()
	return err
}

// capabilitiesOf asks the driver for its capabilities. They determine how ReadWriteOnce is passed, and whether the
// driver reports its capacity.
func capabilitiesOf(ctx context.Context, conn *grpc.ClientConn) (map[csipb.ControllerServiceCapability_RPC_Type]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	response, err := csipb.NewControllerClient(conn).ControllerGetCapabilities(ctx, &csipb.ControllerGetCapabilitiesRequest{}, grpc.WaitForReady(true))
	if err != nil {
		return nil, fmt.Errorf("asking the driver for its capabilities: %w", err)
	}
	offered := map[csipb.ControllerServiceCapability_RPC_Type]bool{}
	for _, c := range response.GetCapabilities() {
		offered[c.GetRpc().GetType()] = true
	}
	return offered, nil
}

// newProvisionController tries again forever. It keeps the record of a created volume until the API server has accepted
// it, so that no volume is forgotten or created twice. Its finalizer on PersistentVolumes keeps a deleted one until its
// volume is gone.
func newProvisionController(ctx context.Context, o Options, factory informers.SharedInformerFactory, p provision.Provisioner) *provision.ProvisionController {
	return provision.NewProvisionController(ctx, o.Kube, o.DriverName, p,
		provision.LeaderElection(false),
		provision.FailedProvisionThreshold(0),
		provision.FailedDeleteThreshold(0),
		provision.RateLimiter(backoff()),
		provision.CreateProvisionedPVLimiter(backoff()),
		provision.Threadiness(provisionerLoad),
		provision.ResyncPeriod(resync),
		provision.AddFinalizer(true),
		provision.ClaimsInformer(factory.Core().V1().PersistentVolumeClaims().Informer()),
		provision.VolumesInformer(factory.Core().V1().PersistentVolumes().Informer()),
		provision.ClassesInformer(factory.Storage().V1().StorageClasses().Informer()),
	)
}

func newAttachController(o Options, factory informers.SharedInformerFactory, conn *grpc.ClientConn, lister attach.VolumeLister, multiWriter bool) *attach.CSIAttachController {
	timeout := callTimeout
	handler := attach.NewCSIHandler(o.Kube, o.DriverName,
		attacher.NewAttacher(conn), lister,
		factory.Core().V1().PersistentVolumes().Lister(),
		factory.Storage().V1().CSINodes().Lister(),
		factory.Storage().V1().VolumeAttachments().Lister(),
		&timeout,
		false, // the driver does not advertise read-only publishing
		multiWriter, csitrans.New(), defaultFSType,
	)
	return attach.NewCSIAttachController(liblog.New(o.Log), o.Kube, o.DriverName, handler,
		factory.Storage().V1().VolumeAttachments(), factory.Core().V1().PersistentVolumes(),
		backoff(), backoff(),
		true, cmp.Or(o.CompareInterval, compareInterval),
	)
}

func newUnattached(o Options, factory informers.SharedInformerFactory, conn *grpc.ClientConn, locks *publicationLocks, recorder record.EventRecorder) *unattached {
	return &unattached{
		lister: attacher.NewVolumeLister(conn, 0), kube: o.Kube, driver: csipb.NewControllerClient(conn), driverName: o.DriverName,
		attachments: factory.Storage().V1().VolumeAttachments().Lister(),
		volumes:     factory.Core().V1().PersistentVolumes().Lister(),
		csiNodes:    factory.Storage().V1().CSINodes().Lister(),
		locks:       locks,
		recorder:    recorder, clock: clock.RealClock{}, log: o.Log,
	}
}

func newSnapshots(o Options, conn *grpc.ClientConn, offered map[csipb.ControllerServiceCapability_RPC_Type]bool, recorder record.EventRecorder) *snapshots {
	return &snapshots{
		kube: o.Kube, client: o.snapshots, conn: conn, driverName: o.DriverName,
		canList:  offered[csipb.ControllerServiceCapability_RPC_LIST_SNAPSHOTS],
		interval: cmp.Or(o.SnapshotInterval, snapshotInterval), recorder: recorder, log: o.Log,
	}
}

func backoff() workqueue.TypedRateLimiter[string] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[string](retryFirst, retryMax)
}
