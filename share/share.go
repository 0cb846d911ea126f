package share

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/google/uuid"

	"github.com/longhorn-lep/longhorn-manager/share/firewall"
	"github.com/longhorn-lep/longhorn-manager/share/ganesha"
	"github.com/longhorn-lep/longhorn-manager/share/nfsclient"
	"github.com/longhorn-lep/longhorn-manager/util/boottime"
)

// How long the steps of stopping may take. Together they are less than the 30 s that a pod has by default.
const (
	prepareTimeout   = 10 * time.Second
	terminateTimeout = 10 * time.Second
	killTimeout      = 2 * time.Second
	busyTimeout      = 3 * time.Second
	unmountTimeout   = 11 * time.Second // including a flush
	abandonTimeout   = 2 * time.Second
)

// Run shares a volume until ctx is done, when it returns nil, or until it cannot continue. When it returns, the server
// has been killed and everything is unmounted, except mounts that the kernel keeps for a volume that does not answer.
func Run(ctx context.Context, o Options) error {
	o, err := o.normalize()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.RuntimeDirectory, 0o700); err != nil {
		return fmt.Errorf("creating the runtime directory: %w", err)
	}
	health, err := serveHealth(ctx, o.HealthListen)
	if err != nil {
		return err
	}
	defer health.close()
	e := openEntrance(o, health.recovery.limited)
	defer e.close()
	v := newVolume(o)
	prepared := make(chan error, 1)
	go func() { prepared <- v.prepare(ctx) }()
	select {
	case err = <-prepared:
	case <-ctx.Done():
		select {
		case err = <-prepared:
		case <-time.After(prepareTimeout):
			return errors.New("the volume is still being prepared; the share manager exits without unmounting it")
		}
	}
	if err != nil || ctx.Err() != nil {
		v.closeWithin(unmountTimeout)
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("preparing volume %s: %w", o.Volume, err)
	}
	health.recovery.grown(v.notGrown)
	health.recovery.found(v.incident)
	return serve(ctx, o, v, e, health)
}

// serve runs the server on a mounted volume.
func serve(ctx context.Context, o Options, v *volume, e *entrance, health *healthService) error {
	config := o.serverConfig(v)
	e.clients.Update() // the list may have changed while the volume was prepared
	if e.isOneSource {
		if err := ganesha.AdoptRecords(v.recovery, firewall.Source4, firewall.Source6); err != nil {
			o.Log.WithError(err).Warn("Cannot adopt the records of clients of an earlier release. Some clients of the last server may lose their locks")
		}
	}
	lost := takeLostClients(o, v)
	o.InForce = lost.confirmThenServe()
	port, err := guardPort(ctx, o, o.target())
	if err != nil {
		v.closeWithin(unmountTimeout)
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	dropped, err := lost.drop(ctx, port)
	if err != nil {
		v.within(abandonTimeout, v.abandon)
		return errors.Join(err, port.end(true))
	}
	health.recovery.decided(dropped, port.port != nil)
	records := newRecords(o, v, health)
	s := newSupervisor(ctx, o, v, e, config, records)
	s.failed, s.grown, s.serving = port.failed, health.recovery.grown, health.set
	reap := reaper()
	s.afterStep = func() { reap(); e.clients.Update(); records.clients.Report(time.Now()) }
	o.Log.Info("The volume is mounted; starting the NFS server")
	stop := records.run(ctx)
	err = s.run(ctx)
	stop()
	// A volume that failed, or that another share manager may have by now, gets no flush from here. The replicas would
	// refuse it, or it would wait for long. All data that the server reported to clients as durable is on disk. Clients
	// send the rest again to a new server.
	orderly := (err == nil || errors.Is(err, ErrServerExits)) && !port.isClosed()
	request := terminateTimeout
	if err != nil || !orderly {
		request = 0
	}
	s.stop(request, killTimeout)
	e.close() // before its rules: no client connects to a share without a server that will have none
	if err := port.end(s.isStopped()); err != nil {
		o.Log.WithError(err).Warn("The rules for the NFS port were not removed")
	}
	if orderly {
		v.closeWithin(unmountTimeout)
	} else {
		o.Log.Warn("The volume is unmounted without a flush: it failed, or another share manager may have it")
		v.within(abandonTimeout, v.abandon)
	}
	return err
}

// newSupervisor supervises servers of a configuration, and their volume.
func newSupervisor(ctx context.Context, o Options, v *volume, e *entrance, config ganesha.Config, records *records) *supervisor {
	timing := defaultTiming(o.Lease)
	p := nfsclient.NewProber(o.NFSPort, timing.probeTimeout)
	s := &supervisor{
		watch: watch{t: timing}, now: boottime.Now,
		lookup: func(ctx context.Context) error { _, err := p.Lookup(ctx, o.Volume); return err },
		null:   p.Null,
		check:  v.check, size: v.size, grow: v.grow,
		log: o.Log,
	}
	s.start = func() (server, error) {
		c := config
		if s.watch.neverAnswered > 0 {
			// the last server never answered: so omit everything optional that could be the reason
			c.WakeLibrary = os.DevNull
			e.close() // without the library, the server opens the port itself
		}
		c.Listener = e.listener
		if err := records.serverStarts(&c); err != nil {
			return nil, err
		}
		return ganesha.Start(ctx, c, records.clients.HandleLine)
	}
	if o.ReadOnly {
		s.grow = func() error { return nil }
	}
	if size, err := v.size(); err == nil {
		s.sizeBytes = size // prepare has grown the file system to this size
	}
	return s
}

// serverConfig is the configuration with which each server of this process starts, with a mark that no client knows.
func (o Options) serverConfig(v *volume) ganesha.Config {
	return ganesha.Config{
		Volume: o.Volume, Path: o.target(), Port: o.NFSPort, Squash: o.Squash, ReadOnly: o.ReadOnly || o.ClientsReadOnly, Lease: o.Lease, Grace: o.Grace,
		Recovery: v.recovery, Cover: v.cover(), Mark: uuid.NewString(),
		File: filepath.Join(o.RuntimeDirectory, "ganesha.conf"), PIDFile: filepath.Join(o.RuntimeDirectory, "ganesha.pid"),
		Program: o.Program, WakeLibrary: o.WakeLibrary, Log: o.Log,
	}
}

// recordable reports whether clients can be recorded on the volume. If the volume does not answer within limit, the
// server may detect it itself.
func (v *volume) recordable(limit time.Duration) error {
	tried := make(chan error, 1)
	go func() { tried <- ganesha.TryRecords(v.recovery) }()
	select {
	case err := <-tried:
		return err
	case <-time.After(limit):
		return nil
	}
}

// closeWithin flushes and unmounts everything, but does not wait longer than limit.
func (v *volume) closeWithin(limit time.Duration) {
	v.within(limit, func() { v.close(time.Now().Add(busyTimeout)) })
}

// within waits for f, but not longer than limit: a thread that waits for the volume cannot be stopped.
func (v *volume) within(limit time.Duration, f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(limit):
		v.log.Warn("The volume did not answer in time. The share manager no longer waits for it")
	}
}

// reaper reaps orphans from time to time, if they become children of this process.
func reaper() func() {
	if os.Getpid() != 1 {
		return func() {}
	}
	o, last := &orphans{}, boottime.Now()
	return func() {
		if now := boottime.Now(); now-last >= orphanRound {
			last = now
			o.reap()
		}
	}
}
