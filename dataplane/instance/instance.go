package instance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/sirupsen/logrus"
	"google.golang.org/grpc"

	"github.com/longhorn-lep/longhorn-manager/dataplane/device"
	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
	"github.com/longhorn-lep/longhorn-manager/util/mountwatch"
	"github.com/longhorn-lep/longhorn-manager/util/thread"
	"github.com/longhorn-lep/longhorn-manager/util/unixsocket"
)

// Options configure an Instance. DataListen, ToolSocket and GRPCSocket must be set.
type Options struct {
	// Root is the path of the node's root directory in this process; the directories in requests are below it. "" is
	// "/".
	Root string
	// DataListen is the TCP address at which replicas are served, "host:port"; port 0 selects a free port.
	DataListen string
	// ToolSocket and GRPCSocket are paths of unix sockets, created for this user only. A file GRPCSocket.lock next to
	// it excludes a second process.
	ToolSocket, GRPCSocket string
	// GenerationsSocket is the path of the socket on which share managers ask (proto.Generations). Its directory is
	// created for it. "" means that there is no such socket. If the socket cannot be created, share managers serve as
	// with an earlier release.
	GenerationsSocket string
	// DeviceDir is the directory of block devices; /dev/longhorn if empty. It belongs to this process: leftovers of
	// earlier processes are removed.
	DeviceDir string
	// Keeper holds the block devices; nil means that this process holds them, and they end with it.
	Keeper device.Keeper
	// QuietPeriod and SlowAfter are the values for engine.Config; 0 is the engine's default. They are for tests and for
	// tools that must not wait.
	QuietPeriod, SlowAfter time.Duration
	// KeepEvery is the value for engine.Config, for tests.
	KeepEvery int64
	// Files gives access to the files of replicas; nil is the node's own file systems, below Root. It is for tests.
	Files fsys.FS
	// Mounts is the file of a mount namespace in which the node's file systems on volumes are visible. Their mounts do
	// not exist in this process's own namespace (holder.Client.Mounts). "" means that there is no such namespace, and
	// that no replica can lie on such a file system.
	Mounts string
	// Version is shown to clients.
	Version string
	// Log receives the log messages; nil discards them.
	Log *logrus.Entry
}

const (
	defaultDeviceDir = "/dev/longhorn"

	// admitTimeout limits how long a connection waits for a replica's gate.
	admitTimeout = 20 * time.Second
	// engineStopTimeout limits flush and teardown of one engine.
	engineStopTimeout = 30 * time.Second
	// replicaCloseTimeout limits the last sync of one replica.
	replicaCloseTimeout = 15 * time.Second
	// releaseTimeout limits how long the stop of a replica waits for its engine's connection to end.
	releaseTimeout = 3 * time.Second
	// drainTimeout limits how long connections may finish when the process stops.
	drainTimeout = 3 * time.Second
)

// Instance is one data-plane process. New creates it, and Run serves.
type Instance struct {
	opts Options
	log  *logrus.Entry
	info *proto.InfoReply

	changes  *changes
	states   *stateTable
	disks    *diskGuard
	replicas *replicaHost
	engines  *engineHost

	lock                   *os.File
	dataListener           net.Listener
	toolListener           net.Listener
	grpcListener           net.Listener
	generationsListener    net.Listener // nil if there is none
	dataServer, toolServer *nbd.Server
	grpcServer             *grpc.Server
	generationsServer      *grpc.Server
}

// New opens the sockets, so that an address in use is an error here. After success the caller must call Run.
func New(opts Options) (*Instance, error) {
	if opts.DataListen == "" || opts.ToolSocket == "" || opts.GRPCSocket == "" {
		return nil, errors.New("the data address, the tool socket and the gRPC socket are required")
	}
	if opts.DeviceDir == "" {
		opts.DeviceDir = defaultDeviceDir
	}
	if opts.Log == nil {
		l := logrus.New()
		l.SetOutput(io.Discard)
		opts.Log = logrus.NewEntry(l)
	}
	onVolumes := false
	if opts.Files == nil {
		opts.Files, onVolumes = diskFiles(opts)
	}
	boot, err := bootID(opts.Root)
	if err != nil {
		opts.Log.WithError(err).Warn("Cannot read the boot ID of the node; no replica that was closed uncleanly counts as complete")
	}
	i := &Instance{opts: opts, log: opts.Log, changes: newChanges(), disks: newDiskGuard(opts.Files, opts.Log)}
	if err := i.listen(); err != nil {
		i.closeListeners()
		return nil, err
	}
	if opts.Keeper == nil {
		opts.Keeper = device.NewLocal(device.Options{DeviceDir: opts.DeviceDir, Log: opts.Log})
		if err := device.RemoveStaleDevices(opts.DeviceDir, nil); err != nil {
			i.log.WithError(err).Warn("Cannot remove stale device nodes; nodes of a process that died may remain")
		}
	}
	port := i.dataListener.Addr().(*net.TCPAddr).Port
	i.info = &proto.InfoReply{
		Uuid: uuid.NewString(), BootId: boot, Port: uint32(port), Version: opts.Version, DevicesKept: opts.Keeper.Successions(), DisksOnVolumes: onVolumes,
		ReplicasGrow: true, DevicesGrow: opts.Keeper.Resizes(), DeviceKind: string(device.KindFUSE),
		Tls: true, Snapshots: true,
	}
	if makes, why := opts.Keeper.MakesNBD(); makes {
		i.info.DeviceKind = string(device.KindNBD)
	} else {
		i.info.WhyNoNbd = why
	}
	i.replicas = newReplicaHost(i.disks, boot, i.changes, i.log)
	i.engines = newEngineHost(i.replicas, i.changes, opts, i.log)
	if err := i.engines.loadKept(context.Background()); err != nil {
		i.closeListeners()
		return nil, err
	}
	i.states = newStateTable(i.readers(), i.changes)
	i.dataServer = nbd.NewServer(&dataExporter{replicas: i.replicas}, nbd.ServerOptions{
		Secret: i.replicas.secretOf, Secrets: i.replicas.secrets, TLSOnly: i.replicas.tlsOnly, Log: i.log,
	})
	i.toolServer = nbd.NewServer(&toolExporter{replicas: i.replicas, engines: i.engines}, nbd.ServerOptions{Log: i.log})
	i.grpcServer = grpc.NewServer()
	proto.RegisterInstanceManagerServer(i.grpcServer, &service{instance: i})
	i.generationsServer = grpc.NewServer(generationsOptions()...)
	proto.RegisterGenerationsServer(i.generationsServer, &generations{engines: i.engines})
	return i, nil
}

// diskFiles returns the node's file systems, and whether those on volumes attached to this node can be used.
func diskFiles(opts Options) (files fsys.FS, onVolumes bool) {
	host := fsys.Host{Root: opts.Root}
	if opts.Mounts == "" {
		return host, false
	}
	tried, err := thread.New(thread.Options{Name: thread.Aside, Mounts: opts.Mounts})
	if err != nil {
		opts.Log.WithError(err).Warn("Disks on volumes that are attached to this node cannot be used")
		return host, false
	}
	tried.Close()
	return fsys.Aside{Host: host, Mounts: opts.Mounts, Served: func() map[uint64]bool {
		served, _ := servedDevices(opts.DeviceDir) // the pattern is valid, and there is no other error
		return served
	}}, true
}

// listen takes the lock first, so that the sockets of a running process are not replaced.
func (i *Instance) listen() (err error) {
	if i.lock, err = lockFile(i.opts.GRPCSocket + ".lock"); err != nil {
		return err
	}
	if i.dataListener, err = (&net.ListenConfig{}).Listen(context.Background(), "tcp", i.opts.DataListen); err != nil {
		return fmt.Errorf("listen for engines: %w", err)
	}
	if i.toolListener, err = unixsocket.Listen(i.opts.ToolSocket); err != nil {
		return fmt.Errorf("listen for tools: %w", err)
	}
	if i.grpcListener, err = unixsocket.Listen(i.opts.GRPCSocket); err != nil {
		return fmt.Errorf("listen for the daemon: %w", err)
	}
	i.listenForShares()
	return nil
}

func (i *Instance) closeListeners() {
	for _, l := range []net.Listener{i.dataListener, i.toolListener, i.grpcListener, i.generationsListener} {
		if l != nil {
			_ = l.Close()
		}
	}
	if i.lock != nil {
		_ = i.lock.Close()
	}
}

// DataAddr is the address at which replicas are served.
func (i *Instance) DataAddr() net.Addr { return i.dataListener.Addr() }

// Run serves until ctx ends. Then it stops engines and closes replicas, in this order and within limited time, and
// returns nil. If a listener fails, it does the same and returns the error. If the device of an engine is in use, the
// engine is flushed and not stopped: its users see errors when the process exits.
func (i *Instance) Run(ctx context.Context) error {
	defer i.closeListeners()
	if err := setIOFlusher(); err != nil {
		i.log.WithError(err).Warn("Cannot mark the process as an I/O flusher; under memory pressure its writes may wait for themselves")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var serving sync.WaitGroup
	failures := make(chan error, 6)
	serve := func(what string, run func() error) {
		serving.Go(func() {
			if err := run(); err != nil {
				failures <- fmt.Errorf("%s: %w", what, err)
				cancel()
			}
		})
	}
	base := context.WithoutCancel(ctx) // the servers end in shutdown, in its order
	serve("serve engines", func() error { return i.dataServer.Serve(base, i.dataListener) })
	serve("serve tools", func() error { return i.toolServer.Serve(base, i.toolListener) })
	serve("serve the daemon", func() error { return serveGRPC(i.grpcServer, i.grpcListener) })
	if i.generationsListener != nil {
		serve("serve share managers", func() error { return serveGRPC(i.generationsServer, i.generationsListener) })
	}
	serve("watch for hanging requests", func() error { return i.replicas.watchStuck(ctx) })
	guard := &mountGuard{deviceDir: i.engines.deviceDir, log: i.log}
	serve("watch the mounts", func() error {
		return mountwatch.Watch(ctx, func() {
			i.disks.lookAll()
			guard.look()
		})
	})
	i.log.WithFields(logrus.Fields{"address": i.DataAddr(), "uuid": i.info.GetUuid(), "boot": i.info.GetBootId()}).Info("Data plane is serving")

	<-ctx.Done()
	i.shutdown(base)
	serving.Wait()
	i.disks.await(drainTimeout)
	select {
	case err := <-failures:
		return err
	default:
		return nil
	}
}

func serveGRPC(s *grpc.Server, l net.Listener) error {
	err := s.Serve(l)
	if errors.Is(err, grpc.ErrServerStopped) {
		return nil // ctx ended before the start
	}
	return err
}

// shutdown ends everything in the order of use. Engines flush to local and remote replicas, so they end first. Then the
// replicas have no users. The sockets close last, so that the daemon can watch.
func (i *Instance) shutdown(ctx context.Context) {
	i.log.Info("Data plane is stopping")
	i.replicas.refuseNew()
	i.engines.shutdown(ctx)
	i.replicas.shutdown(ctx)
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	for _, s := range []*nbd.Server{i.toolServer, i.dataServer} {
		if err := s.Shutdown(ctx); err != nil {
			i.log.WithError(err).Warn("Closed connections that did not end in time")
		}
	}
	i.generationsServer.Stop()
	i.grpcServer.Stop()
}

// readers read the state for the watch.
func (i *Instance) readers() readers {
	return readers{
		info:     i.info,
		replicas: i.replicas.states, replica: i.replicas.namedStates,
		engines: i.engines.states, engine: i.engines.namedStates,
		disks: i.replicas.diskStates,
	}
}

// bootID returns the id of the node's boot, as the node's own root shows it. A node may be only a part of a machine.
// Then it may restart while the kernel keeps running, and a container's own /proc shows the kernel's boot. If the root
// has no /proc, bootID uses the kernel's.
func bootID(root string) (string, error) {
	const file = "/proc/sys/kernel/random/boot_id"
	b, err := os.ReadFile(filepath.Join(root, file))
	if errors.Is(err, os.ErrNotExist) {
		b, err = os.ReadFile(file)
	}
	if err != nil {
		return "", fmt.Errorf("read the boot ID: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}
