package instance

import (
	"context"
	"fmt"

	"github.com/sirupsen/logrus"

	"github.com/longhorn-lep/longhorn-manager/dataplane/device"
	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
	"github.com/longhorn-lep/longhorn-manager/util/logfields"
)

// A process may leave a device behind when it exits. The device is shown as the engine that served it, in the failed
// state. So it has the name under which it is taken over or ended:
//
//	EngineStart, predecessor_session is its session    an engine of a higher generation takes it over
//	EngineStart, any other                             it is ended first: its users' data may be older than the volume
//	EngineStop, by force                               it is ended
//
// Its users wait until one of these happens.

// loadKept records the devices that are kept and not served. It is called once, before the first engine.
func (h *engineHost) loadKept(ctx context.Context) error {
	held, err := h.keeper.List(ctx)
	if err != nil {
		return fmt.Errorf("list the kept devices: %w", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range held {
		if !d.Served {
			h.kept[d.Volume] = d
			h.logOfKept(d).Info("A kept device waits for the next engine")
		}
	}
	return nil
}

func (h *engineHost) logOfKept(d device.Held) *logrus.Entry {
	return h.log.WithFields(logrus.Fields{logfields.Engine: d.Owner.Engine, logfields.Volume: d.Volume, logfields.Generation: d.Owner.Generation})
}

// keptOf finds a kept device by the name of the engine that served it.
func (h *engineHost) keptOf(engine string) (device.Held, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range h.kept {
		if d.Owner.Engine == engine {
			return d, true
		}
	}
	return device.Held{}, false
}

// prepareKept decides how an engine that is about to start treats the kept device of its volume. adopts means that the
// engine takes it over. The caller holds the volume's lock.
func (h *engineHost) prepareKept(ctx context.Context, s *proto.EngineSpec) (adopts bool, err error) {
	h.mu.Lock()
	d, kept := h.kept[s.GetVolume()]
	h.mu.Unlock()
	switch predecessor := s.GetPredecessorSession(); {
	case kept && predecessor == d.Owner.Session && s.GetFrontend() == proto.Frontend_FRONTEND_BLOCK:
		if s.GetGeneration() <= d.Owner.Generation {
			return false, refuse(reasonFenced, "generation %d was requested, but an engine of generation %d served the kept device", s.GetGeneration(), d.Owner.Generation)
		}
		if s.GetSizeBytes() < d.SizeBytes { // a smaller device grows by EngineExpand
			return false, fmt.Errorf("%w: size %d must be at least the %d bytes of the kept device", errInvalid, s.GetSizeBytes(), d.SizeBytes)
		}
		return true, nil
	case predecessor != "":
		return false, refuse(reasonNotHosted, "no device of session %s of volume %s is kept", predecessor, s.GetVolume())
	case kept:
		return false, h.endKept(ctx, d)
	}
	return false, nil
}

// adopted removes a kept device from the list, because an engine now represents it.
func (h *engineHost) adopted(volume string) {
	h.mu.Lock()
	d, kept := h.kept[volume]
	delete(h.kept, volume)
	h.mu.Unlock()
	if kept {
		h.changes.notifyEngine(d.Owner.Engine)
	}
}

// keepAgain records a device that no engine has taken over after all, and that could not be ended. If it were not
// recorded, the next engine of the volume would take it over, even after later writes elsewhere.
func (h *engineHost) keepAgain(ctx context.Context, volume string) {
	held, err := h.keeper.List(ctx)
	if err != nil {
		h.log.WithError(err).Warn("Cannot list the kept devices")
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range held {
		if d.Volume == volume && !d.Served {
			h.kept[volume] = d
			h.changes.notifyEngine(d.Owner.Engine)
		}
	}
}

// stopKept ends the device of an engine with a process that has exited. Without force the device stays: nothing serves
// its users, so they cannot close it.
func (h *engineHost) stopKept(ctx context.Context, name, session string, force bool) error {
	d, found := h.keptOf(name)
	if !found || session != "" && session != d.Owner.Session {
		return nil
	}
	defer h.names.lock(d.Volume)()
	if now, found := h.keptOf(name); !found || now.Owner != d.Owner {
		return nil // taken over or ended during the wait
	}
	if !force {
		return refuse(reasonInUse, "the device of engine %s is kept for the next engine; without a next engine, only a stop by force removes it", name)
	}
	return h.endKept(ctx, d)
}

// endKept removes a kept device: from now on every operation of its users on it fails.
func (h *engineHost) endKept(ctx context.Context, d device.Held) error {
	if err := h.keeper.Abort(ctx, d.Volume); err != nil {
		return fmt.Errorf("remove the kept device of volume %s: %w", d.Volume, err)
	}
	h.adopted(d.Volume)
	h.logOfKept(d).Warn("Removed a kept device that no engine took over")
	return nil
}

// reasonKept is the reason that is shown for a device after its process has exited.
const reasonKept = "DeviceKept"

func keptState(d device.Held) *proto.EngineState {
	return &proto.EngineState{
		Name: d.Owner.Engine, Volume: d.Volume, Generation: d.Owner.Generation, Session: d.Owner.Session,
		Phase: proto.Phase_PHASE_ERROR, Reason: reasonKept, Message: "the process that served the device has exited; its users wait for the next engine",
		Endpoint: d.Path, SizeBytes: d.SizeBytes, DeviceKept: true,
	}
}
