package instance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/longhorn-lep/longhorn-manager/dataplane/device"
	"github.com/longhorn-lep/longhorn-manager/dataplane/engine"
	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica"
	"github.com/longhorn-lep/longhorn-manager/util/logfields"
)

// engineHost has the engines of this process by name.
type engineHost struct {
	replicas  *replicaHost
	changes   *changes
	deviceDir string
	keeper    device.Keeper
	// quietPeriod, slowAfter and keepEvery are the values for engine.Config.
	quietPeriod, slowAfter time.Duration
	keepEvery              int64
	// stopTimeout limits the stop of one engine. flushTimeout limits the last flush of an engine that is left running.
	stopTimeout, flushTimeout time.Duration

	log   *logrus.Entry
	names nameLocks

	mu     sync.Mutex
	hosted map[string]*hostedEngine // guarded by mu; by name
	kept   map[string]device.Held   // guarded by mu; by volume, the devices that no engine here has taken over
}

// hostedEngine is never changed: an entry is replaced.
type hostedEngine struct {
	spec   *proto.EngineSpec
	engine *engine.Engine
	socket *socketFrontend
	device func() uint64 // number of the block device; 0 if there is none
	adopts bool          // it takes over a kept device when it serves
}

func newEngineHost(r *replicaHost, c *changes, opts Options, log *logrus.Entry) *engineHost {
	return &engineHost{
		replicas: r, changes: c, deviceDir: opts.DeviceDir, keeper: opts.Keeper, kept: map[string]device.Held{},
		quietPeriod: opts.QuietPeriod, slowAfter: opts.SlowAfter, keepEvery: opts.KeepEvery,
		stopTimeout: engineStopTimeout, flushTimeout: replicaCloseTimeout, log: log, hosted: map[string]*hostedEngine{},
	}
}

func (h *engineHost) find(name string) *hostedEngine {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.hosted[name]
}

func (h *engineHost) ofVolume(volume string) *hostedEngine {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.hosted {
		if e.spec.GetVolume() == volume {
			return e
		}
	}
	return nil
}

func (s *service) EngineStart(ctx context.Context, r *proto.EngineSpec) (*proto.EngineState, error) {
	state, err := s.instance.engines.start(ctx, r)
	return state, toStatus(err)
}

// start starts an engine. It may replace an engine of a lower generation that has ended.
func (h *engineHost) start(ctx context.Context, s *proto.EngineSpec) (*proto.EngineState, error) {
	if err := validateEngine(s); err != nil {
		return nil, err
	}
	line, err := lineFromWire(s.GetLine())
	if err != nil {
		return nil, err
	}
	defer h.names.lock(s.GetVolume())() // by volume: two engines of one volume would share a device
	if err := h.replicas.checkRunning(); err != nil {
		return nil, err
	}
	if old := h.ofVolume(s.GetVolume()); old != nil {
		replace, err := mayReplace(old, s)
		if err != nil {
			return nil, err
		}
		if !replace {
			return old.state(), nil
		}
		if err := h.end(ctx, old, old.engine.Stop); err != nil {
			return nil, err
		}
	}
	if old := h.find(s.GetName()); old != nil {
		return nil, refuse(reasonRunning, "engine %s already runs for volume %s", s.GetName(), old.spec.GetVolume())
	}
	adopts, err := h.prepareKept(ctx, s)
	if err != nil {
		return nil, err
	}
	e := h.launch(s, line, adopts)
	h.mu.Lock()
	h.hosted[s.GetName()] = e
	h.mu.Unlock()
	h.adopted(s.GetVolume())
	h.changes.notifyEngine(s.GetName())
	return e.state(), nil
}

func validateEngine(s *proto.EngineSpec) error {
	switch {
	case !isElement(s.GetName()) || !isElement(s.GetVolume()) || !isElement(s.GetSession()):
		return fmt.Errorf("%w: engine name %q, volume name %q and session %q must not be empty and must not contain '/'", errInvalid, s.GetName(), s.GetVolume(), s.GetSession())
	case s.GetGeneration() < 1:
		return fmt.Errorf("%w: generation %d must be at least 1", errInvalid, s.GetGeneration())
	case s.GetSizeBytes() <= 0 || s.GetSizeBytes()%replica.BlockBytes != 0:
		return fmt.Errorf("%w: size %d must be a positive multiple of %d bytes", errInvalid, s.GetSizeBytes(), replica.BlockBytes)
	case len(s.GetSecret()) < minSecretBytes:
		return fmt.Errorf("%w: an engine needs a secret of at least %d bytes", errInvalid, minSecretBytes)
	case len(s.GetMembers()) == 0:
		return fmt.Errorf("%w: an engine needs at least one replica", errInvalid)
	}
	for _, m := range s.GetMembers() {
		if !isElement(m.GetName()) {
			return fmt.Errorf("%w: replica name %q must not be empty and must not contain '/'", errInvalid, m.GetName())
		}
	}
	return nil
}

// mayReplace returns true if the existing engine can be replaced, and false if it is the requested engine. The error
// means that it must stay.
func mayReplace(old *hostedEngine, s *proto.EngineSpec) (bool, error) {
	generation, session := old.spec.GetGeneration(), old.spec.GetSession()
	phase := old.engine.State().Phase
	switch {
	case s.GetGeneration() == generation && s.GetSession() == session && s.GetName() == old.spec.GetName():
		return false, nil
	case s.GetGeneration() <= generation:
		return false, refuse(reasonFenced, "generation %d was requested, but this node has an engine of generation %d", s.GetGeneration(), generation)
	case phase != engine.PhaseError && phase != engine.PhaseStopped:
		return false, refuse(reasonRunning, "the engine of generation %d must stop first; its phase is %s", generation, phase)
	}
	return true, nil
}

// A device is the frontend of an engine. Neither of the two packages knows the other one.
var (
	_ engine.Frontend = (*device.Frontend)(nil)
	_ engine.Aborter  = (*device.Frontend)(nil)
	_ engine.Resizer  = (*device.Frontend)(nil)
)

func (h *engineHost) launch(s *proto.EngineSpec, line layers.Line, adopts bool) *hostedEngine {
	log := h.log.WithFields(logrus.Fields{logfields.Engine: s.GetName(), logfields.Volume: s.GetVolume()})
	e := &hostedEngine{spec: s, adopts: adopts, device: func() uint64 { return 0 }, socket: newSocketFrontend(s.GetFrontend() == proto.Frontend_FRONTEND_SOCKET)}
	cfg := h.config(s, adopts)
	cfg.Line = line
	switch s.GetFrontend() {
	case proto.Frontend_FRONTEND_BLOCK:
		owner := device.Owner{Engine: s.GetName(), Generation: s.GetGeneration(), Session: s.GetSession()}
		frontend := device.NewFrontend(device.FrontendOptions{
			Keeper: h.keeper, Owner: owner, Predecessor: s.GetPredecessorSession(), Log: log,
		})
		cfg.Frontend, e.device = frontend, frontend.Device
	case proto.Frontend_FRONTEND_SOCKET:
		cfg.Frontend = e.socket
	}
	e.engine = engine.Start(cfg)
	return e
}

// config returns the configuration of an engine, without its frontend. The users of a device that it adopts were served
// before.
func (h *engineHost) config(s *proto.EngineSpec, adopts bool) engine.Config {
	cfg := engine.Config{
		Name: s.GetName(), Volume: s.GetVolume(), Generation: s.GetGeneration(), Session: s.GetSession(),
		SizeBytes: s.GetSizeBytes(), Recorded: epochFromWire(s.GetEpoch()), OnChange: func() { h.changes.notifyEngine(s.GetName()) }, Log: h.log,
		QuietPeriod: h.quietPeriod, SlowAfter: h.slowAfter, KeepEvery: h.keepEvery, HasUsers: adopts,
		Connect: func(ctx context.Context, m engine.Member) (engine.Replica, error) { return h.connect(ctx, s, m) },
		Refuses: func(ctx context.Context, m engine.Member) error { return h.refuses(ctx, s, m) },
	}
	for _, m := range s.GetMembers() {
		cfg.Members = append(cfg.Members, h.member(s, m))
	}
	return cfg
}

func (h *engineHost) member(s *proto.EngineSpec, m *proto.Member) engine.Member {
	_, local := h.replicas.local(m.GetName(), s.GetVolume(), s.GetSecret())
	return engine.Member{Name: m.GetName(), UID: m.GetUid(), Address: m.GetAddress(), Local: local, TLS: m.GetTls()}
}

// connect opens a member: a replica of this process by direct call, any other over the network. Both pass the same
// gate. Both report a shut gate in the same way, at once or while the engine runs: the error wraps engine.ErrFenced.
//
// If a replica was opened here only after the member was described, it is also reached over the network. The engine
// expects that it can cut the connection of such a member. A direct session cannot be cut, and a disk that hangs would
// hold its requests forever.
func (h *engineHost) connect(ctx context.Context, s *proto.EngineSpec, m engine.Member) (engine.Replica, error) {
	if r, ok := h.replicas.local(m.Name, s.GetVolume(), s.GetSecret()); ok && m.Local {
		session, err := r.Admit(ctx, s.GetGeneration(), s.GetSession())
		if err != nil {
			return nil, asFenced(err)
		}
		return &localMember{translated{h.replicas.forEngine(m.Name, session), asFenced}, session}, nil
	}
	name := dataExport{volume: s.GetVolume(), replica: m.Name, generation: s.GetGeneration(), session: s.GetSession()}
	opts := nbd.DialOptions{Secret: s.GetSecret(), TLS: m.TLS, Timeout: admitTimeout, Log: h.log}
	c, err := nbd.Dial(ctx, "tcp", m.Address, name.String(), opts)
	if err != nil {
		return nil, asFenced(err)
	}
	return &remoteMember{translated{c, asFenced}, c}, nil
}

func (s *service) EngineRecordEpoch(_ context.Context, r *proto.EpochRecord) (*proto.Empty, error) {
	return &proto.Empty{}, toStatus(s.instance.engines.recordEpoch(r))
}

func (h *engineHost) recordEpoch(r *proto.EpochRecord) error {
	e := h.find(r.GetName())
	if e == nil {
		return refuse(reasonNotProposed, "engine %s does not exist on this node", r.GetName())
	}
	var recorded *layers.Line
	if len(r.GetLine()) > 0 {
		line, err := lineFromWire(r.GetLine())
		if err != nil {
			return err
		}
		recorded = &line
	}
	return e.engine.RecordEpoch(r.GetSession(), epochFromWire(r.GetEpoch()), recorded)
}

// expandTimeout limits an expansion. An expansion asks each member for its state, and the kernel for a larger device.
const expandTimeout = 15 * time.Second

func (s *service) EngineExpand(ctx context.Context, r *proto.EngineExpandRequest) (*proto.Empty, error) {
	return &proto.Empty{}, toStatus(s.instance.engines.expand(ctx, r))
}

// expand makes a volume larger. It continues if the caller leaves.
func (h *engineHost) expand(ctx context.Context, r *proto.EngineExpandRequest) error {
	if size := r.GetSizeBytes(); size <= 0 || size%replica.BlockBytes != 0 {
		return fmt.Errorf("%w: size %d must be a positive multiple of %d bytes", errInvalid, size, replica.BlockBytes)
	}
	e := h.find(r.GetName())
	if e == nil {
		return refuse(reasonNotHosted, "engine %s does not exist on this node", r.GetName())
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), expandTimeout)
	defer cancel()
	return e.engine.Expand(ctx, r.GetSession(), r.GetSizeBytes())
}

func (s *service) EngineStop(ctx context.Context, r *proto.EngineRef) (*proto.Empty, error) {
	return &proto.Empty{}, toStatus(s.instance.engines.stop(ctx, r.GetName(), r.GetSession(), r.GetForce()))
}

// stop ends an engine, unless its device is in use; with force, it ends the engine in any case. With a session, it does
// not touch an engine of another session.
func (h *engineHost) stop(ctx context.Context, name, session string, force bool) error {
	e := h.find(name)
	if e == nil {
		return h.stopKept(ctx, name, session, force)
	}
	if session != "" && session != e.spec.GetSession() {
		return nil
	}
	if force {
		e.engine.Interrupt() // a stop that waits for users' data holds the lock
	}
	defer h.names.lock(e.spec.GetVolume())()
	if h.find(name) != e {
		return nil // it ended during the wait
	}
	if force {
		return h.end(ctx, e, e.engine.StopForce)
	}
	return h.end(ctx, e, e.engine.Stop)
}

// end stops an engine and removes it from the list, unless it continues because its device is in use. The stop
// continues if the caller leaves, because a started stop should finish.
func (h *engineHost) end(ctx context.Context, e *hostedEngine, stop func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.stopTimeout)
	defer cancel()
	err := stop(ctx)
	log := h.log.WithFields(logrus.Fields{logfields.Engine: e.spec.GetName(), logfields.Volume: e.spec.GetVolume()})
	switch {
	case errors.Is(err, engine.ErrUnclean):
		log.WithError(err).Warn("Engine stopped without a last flush; the next start compares its replicas")
	case err != nil && e.engine.State().Phase != engine.PhaseStopped:
		return err
	case err != nil:
		log.WithError(err).Warn("Engine stopped, but its device was not removed completely")
	}
	e.socket.cut()
	if e.adopts { // it may have ended before it took over the device; nothing else removes the device
		h.abandon(ctx, e, log)
	}
	h.mu.Lock()
	delete(h.hosted, e.spec.GetName())
	h.mu.Unlock()
	h.changes.notifyEngine(e.spec.GetName())
	return nil
}

// abandon removes the device that an engine should have taken over. It has its own time limit, because the stop may
// have used up the time of ctx.
func (h *engineHost) abandon(ctx context.Context, e *hostedEngine, log *logrus.Entry) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.stopTimeout)
	defer cancel()
	if err := h.keeper.Abort(ctx, e.spec.GetVolume()); err != nil {
		log.WithError(err).Warn("The device that the engine should have taken over was not removed")
		h.keepAgain(ctx, e.spec.GetVolume())
	}
}
