package sidecar

import (
	"context"
	"sync"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	snapshotclient "github.com/kubernetes-csi/external-snapshotter/client/v8/clientset/versioned"
	snapshotinformers "github.com/kubernetes-csi/external-snapshotter/client/v8/informers/externalversions"
	snapshot "github.com/kubernetes-csi/external-snapshotter/v8/pkg/sidecar-controller"
	"github.com/sirupsen/logrus"
	"google.golang.org/grpc"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
)

// snapshotterLoad is how many snapshots the snapshotter works on at the same time. snapshotInterval is how often it
// checks that the cluster has VolumeSnapshots.
const (
	snapshotterLoad  = 10
	snapshotInterval = 30 * time.Second
)

// The driver's snapshots are named <prefix>-<UID of the VolumeSnapshot>. wholeUID: the name has all of it.
const (
	snapshotNamePrefix = "snapshot"
	wholeUID           = -1
)

// snapshots takes and deletes snapshots for VolumeSnapshotContents. A cluster has this kind only after its operator has
// installed the definitions, which may be before or after this process starts. So snapshots works as long as the kind
// exists, and otherwise waits for it.
//
//	VolumeSnapshot ◄── snapshot-controller of the cluster ──► VolumeSnapshotContent ◄── snapshots ──► driver
type snapshots struct {
	kube       kubernetes.Interface
	client     snapshotclient.Interface
	conn       *grpc.ClientConn
	driverName string
	// canList: the driver answers ListSnapshots.
	canList  bool
	interval time.Duration
	recorder record.EventRecorder
	log      *logrus.Entry
}

// run works until ctx is done.
func (s *snapshots) run(ctx context.Context) {
	for s.await(ctx, true) {
		s.log.Info("The cluster has VolumeSnapshots: taking snapshots")
		work, end := context.WithCancel(ctx)
		var watch sync.WaitGroup
		watch.Go(func() {
			defer end()
			s.await(work, false)
		})
		s.work(work)
		end()
		watch.Wait()
	}
}

// await returns true when the kinds exist, or, if exist is false, when they do not. It returns false when ctx is done.
// A failed request changes nothing.
func (s *snapshots) await(ctx context.Context, exist bool) bool {
	next := time.NewTicker(s.interval)
	defer next.Stop()
	isLogged := false
	for {
		switch err := s.look(ctx); {
		case ctx.Err() != nil:
			return false
		case (err == nil) && exist, apierrors.IsNotFound(err) && !exist:
			return true
		case err != nil && !isLogged:
			isLogged = true
			s.reportAbsence(err)
		}
		select {
		case <-ctx.Done():
			return false
		case <-next.C:
		}
	}
}

func (s *snapshots) reportAbsence(err error) {
	if apierrors.IsNotFound(err) {
		s.log.Info("The cluster has no VolumeSnapshots; waiting until their definitions are installed")
		return
	}
	s.log.WithError(err).Warn("Cannot see whether the cluster has VolumeSnapshots; asking again")
}

// look asks for one object of each kind that the snapshotter reads.
func (s *snapshots) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	one := metav1.ListOptions{Limit: 1}
	if _, err := s.client.SnapshotV1().VolumeSnapshotContents().List(ctx, one); err != nil {
		return err
	}
	_, err := s.client.SnapshotV1().VolumeSnapshotClasses().List(ctx, one)
	return err
}

// work runs the library's controller until ctx is done. The library's recorder of Events never stops: each call leaves
// a few goroutines.
func (s *snapshots) work(ctx context.Context) {
	factory := snapshotinformers.NewSharedInformerFactory(s.client, resync)
	api := factory.Snapshot().V1()
	driver := &snapshotClient{
		end: ctx, conn: s.conn, driverName: s.driverName, canList: s.canList,
		contents: api.VolumeSnapshotContents().Lister(), recorder: s.recorder,
	}
	controller := snapshot.NewCSISnapshotSideCarController(
		s.client, s.kube, s.driverName, api.VolumeSnapshotContents(), api.VolumeSnapshotClasses(),
		driver, nil, callTimeout, resync,
		snapshotNamePrefix, wholeUID, "", wholeUID,
		false, // the driver does not use the name of the VolumeSnapshot
		backoff(),
		false, nil, nil, backoff(), // no groups
	)
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	var workers sync.WaitGroup
	controller.Run(snapshotterLoad, ctx.Done(), &workers)
	workers.Wait()
}

// handleOf is the id of a content's snapshot; "" if it has none yet.
func handleOf(content *snapshotv1.VolumeSnapshotContent) string {
	switch {
	case content.Status != nil && content.Status.SnapshotHandle != nil:
		return *content.Status.SnapshotHandle
	case content.Spec.Source.SnapshotHandle != nil:
		return *content.Spec.Source.SnapshotHandle
	}
	return ""
}
