package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/longhorn-lep/longhorn-manager/controller/engine"
	"github.com/longhorn-lep/longhorn-manager/controller/instancemanager"
	"github.com/longhorn-lep/longhorn-manager/controller/node"
	"github.com/longhorn-lep/longhorn-manager/controller/replica"
	"github.com/longhorn-lep/longhorn-manager/controller/upgrade"
	"github.com/longhorn-lep/longhorn-manager/dataplane/device/holder"
	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/client"
	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	dataplane "github.com/longhorn-lep/longhorn-manager/dataplane/replica"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// dataPlane gives the controllers access to this node's instance manager: the last state that its watch sent, and its
// calls. It implements the interfaces that the engine, replica and instance manager controllers declare.
type dataPlane struct {
	rpc          *client.Client
	holderSocket string
	// users returns the names of the users of an engine's device.
	users func(engine string) []string

	mu    sync.RWMutex
	state *proto.State // guarded by mu; nil while the instance manager does not answer
	// changed is called after every change of state, with the differences.
	changed func(stateDiff)
}

// newDataPlane creates the client of the instance manager behind a socket, and of the holder of its devices. Neither
// needs to run yet.
func newDataPlane(socket, holderSocket string) (*dataPlane, error) {
	rpc, err := client.New(socket)
	if err != nil {
		return nil, err
	}
	return &dataPlane{rpc: rpc, holderSocket: holderSocket, users: func(string) []string { return nil }}, nil
}

// watch keeps the state up to date until ctx ends.
func (d *dataPlane) watch(ctx context.Context) error {
	d.rpc.WatchChanges(ctx, d.update)
	return nil
}

// close cancels all calls.
func (d *dataPlane) close() { _ = d.rpc.Close() } // fails only if it is closed already

// update takes the state that the watch sent, and what differs from the state before. nil: the instance manager does
// not answer.
func (d *dataPlane) update(s *proto.State, c client.Change) {
	d.mu.Lock()
	d.state = s
	d.mu.Unlock()
	if d.changed != nil {
		d.changed(diffOf(c))
	}
}

func (d *dataPlane) snapshot() *proto.State {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.state
}

// Snapshot implements instancemanager.DataPlane.
func (d *dataPlane) Snapshot() (instancemanager.Snapshot, bool) {
	s := d.snapshot()
	return instancemanager.Snapshot{
		Process: s.GetInfo().GetUuid(),
		Version: s.GetInfo().GetVersion(),
		Port:    int(s.GetInfo().GetPort()),

		GrowsReplicas: s.GetInfo().GetReplicasGrow(), GrowsDevices: s.GetInfo().GetDevicesGrow(),
		TakesSnapshots: s.GetInfo().GetSnapshots(),

		Engines:  len(s.GetEngines()),
		Replicas: len(s.GetReplicas()),
	}, s != nil
}

// Node returns the part of the instance manager's state that concerns the node and its disks.
func (d *dataPlane) Node() node.DataPlane {
	s := d.snapshot()
	says := node.DataPlane{
		Answers: s != nil, DevicesKept: s.GetInfo().GetDevicesKept(), DisksOnVolumes: s.GetInfo().GetDisksOnVolumes(),
		DeviceKind: s.GetInfo().GetDeviceKind(), WhyNoNBD: s.GetInfo().GetWhyNoNbd(),
	}
	for _, hanging := range s.GetDisks() {
		if says.HangingDisks == nil {
			says.HangingDisks = map[string]string{}
		}
		says.HangingDisks[hanging.GetPath()] = hanging.GetMessage()
	}
	return says
}

// Process implements upgrade.DataPlane.
func (d *dataPlane) Process() (upgrade.Snapshot, bool) {
	s := d.snapshot()
	return upgrade.Snapshot{
		Process: s.GetInfo().GetUuid(), Version: s.GetInfo().GetVersion(), Replaceable: s.GetInfo().GetDevicesKept(),
	}, s != nil
}

// Replace implements upgrade.DataPlane: it sends the holder the program from which this process was started.
func (d *dataPlane) Replace(ctx context.Context) error {
	program, err := os.Open("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("open the program of this process: %w", err)
	}
	defer program.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, program); err != nil {
		return fmt.Errorf("read the program of this process: %w", err)
	}
	err = holder.Replace(ctx, d.holderSocket, program, Version, hex.EncodeToString(sum.Sum(nil)))
	if errors.Is(err, holder.ErrBusy) {
		return upgrade.ErrBusy
	}
	return err
}

// ObserveReplica implements replica.DataPlane.
func (d *dataPlane) ObserveReplica(name string) replica.Observed {
	s := d.snapshot()
	if s == nil {
		return replica.Observed{Phase: types.PhaseUnknown}
	}
	for _, r := range s.GetReplicas() {
		if r.GetName() == name {
			return replica.Observed{
				Phase: phases[r.GetPhase()], Reason: r.GetReason(), Message: r.GetMessage(),
				Generation: r.GetGeneration(), AllocatedBytes: r.GetAllocatedBytes(), Process: s.GetInfo().GetUuid(),
				SizeBytes: r.GetSizeBytes(), GrowError: r.GetGrowError(), Grows: s.GetInfo().GetReplicasGrow(),
				Secure: s.GetInfo().GetTls(), Layers: layersFromWire(s.GetInfo(), r),
			}
		}
	}
	return replica.Observed{Phase: types.PhaseAbsent, Process: s.GetInfo().GetUuid(), Grows: s.GetInfo().GetReplicasGrow()}
}

// ObserveEngine implements engine.DataPlane.
func (d *dataPlane) ObserveEngine(name string) engine.Observed {
	s := d.snapshot()
	if s == nil {
		return engine.Observed{Phase: types.PhaseUnknown}
	}
	for _, e := range s.GetEngines() {
		if e.GetName() != name {
			continue
		}
		o := engine.Observed{
			Phase: phases[e.GetPhase()], Reason: e.GetReason(), Message: e.GetMessage(),
			Generation: e.GetGeneration(), Session: e.GetSession(),
			Endpoint: e.GetEndpoint(), SizeBytes: e.GetSizeBytes(),
			Proposed: epochFromWire(e.GetProposedEpoch()), Shown: epochFromWire(e.GetShownEpoch()), Process: s.GetInfo().GetUuid(),
			Grows: s.GetInfo().GetReplicasGrow(), DevicesGrow: s.GetInfo().GetDevicesGrow(),
		}
		addLines(&o, s.GetInfo(), e)
		if e.GetDeviceKept() {
			o.Phase = types.PhaseKept
		}
		o.Modes, o.Rebuilds = membersFromWire(e.GetMembers())
		return o
	}
	return engine.Observed{Phase: types.PhaseAbsent, Process: s.GetInfo().GetUuid()}
}

// ReplicaPhase implements engine.DataPlane.
func (d *dataPlane) ReplicaPhase(name string) types.Phase { return d.ObserveReplica(name).Phase }

// The states of a rebuild that users see.
const (
	rebuildInProgress = "in_progress"
	rebuildError      = "error"
)

// membersFromWire returns the mode of each replica of an engine. It also returns the rebuild of each replica that is
// not a member. That rebuild is under way, or has failed with an error. For a replica that was never rebuilt, the error
// is the reason why it was expelled.
func membersFromWire(members []*proto.MemberState) (map[string]longhorn.ReplicaMode, map[string]longhorn.RebuildStatus) {
	if len(members) == 0 {
		return nil, nil
	}
	modes := make(map[string]longhorn.ReplicaMode, len(members))
	var rebuilds map[string]longhorn.RebuildStatus
	for _, m := range members {
		modes[m.GetName()] = longhorn.ReplicaMode(m.GetMode())
		r := longhorn.RebuildStatus{Error: m.GetError(), IsRebuilding: m.GetRebuilding(), Progress: int(m.GetProgress())}
		if r.IsRebuilding {
			r.CopyBytes, r.Partial = m.GetCopyBytes(), m.GetPartial()
		}
		switch {
		case r.IsRebuilding:
			r.State = rebuildInProgress
		case r.Error != "":
			r.State = rebuildError
		default:
			continue
		}
		if rebuilds == nil {
			rebuilds = map[string]longhorn.RebuildStatus{}
		}
		rebuilds[m.GetName()] = r
	}
	return modes, rebuilds
}

// Replicas implements replica.DataPlane: it returns the names of the hosted replicas; false while these are not known.
func (d *dataPlane) Replicas() ([]string, bool) {
	s := d.snapshot()
	names := make([]string, 0, len(s.GetReplicas()))
	for _, r := range s.GetReplicas() {
		names = append(names, r.GetName())
	}
	return names, s != nil
}

// Engines implements engine.DataPlane: it returns the names of the hosted engines; false while these are not known.
func (d *dataPlane) Engines() ([]string, bool) {
	s := d.snapshot()
	names := make([]string, 0, len(s.GetEngines()))
	for _, e := range s.GetEngines() {
		names = append(names, e.GetName())
	}
	return names, s != nil
}

var phases = map[proto.Phase]types.Phase{
	proto.Phase_PHASE_UNSPECIFIED: types.PhaseUnknown,
	proto.Phase_PHASE_STARTING:    types.PhaseStarting,
	proto.Phase_PHASE_RUNNING:     types.PhaseRunning,
	proto.Phase_PHASE_STOPPING:    types.PhaseStopping,
	proto.Phase_PHASE_ERROR:       types.PhaseError,
}

// CreateReplica implements replica.DataPlane.
func (d *dataPlane) CreateReplica(ctx context.Context, s replica.Spec) error {
	_, err := d.rpc.ReplicaCreate(ctx, replicaToWire(s))
	return unlessInTime(refusalFromWire(err))
}

// StartReplica implements replica.DataPlane.
func (d *dataPlane) StartReplica(ctx context.Context, s replica.Spec) error {
	_, err := d.rpc.ReplicaStart(ctx, replicaToWire(s))
	return unlessInTime(refusalFromWire(err))
}

// StopReplica implements replica.DataPlane.
func (d *dataPlane) StopReplica(ctx context.Context, name string, fence int64) error {
	_, err := d.rpc.ReplicaStop(ctx, &proto.ReplicaRef{Name: name, FenceGeneration: fence})
	return err
}

// RemoveReplica implements replica.DataPlane.
func (d *dataPlane) RemoveReplica(ctx context.Context, s replica.Spec) error {
	_, err := d.rpc.ReplicaRemove(ctx, replicaToWire(s))
	return refusalFromWire(err)
}

// StartEngine implements engine.DataPlane.
func (d *dataPlane) StartEngine(ctx context.Context, s engine.Spec) error {
	w := &proto.EngineSpec{
		Name: s.Name, Volume: s.Volume, Generation: s.Generation, Session: s.Session,
		SizeBytes: s.SizeBytes, Epoch: epochToWire(s.Epoch), Secret: s.Secret, PredecessorSession: s.Predecessor,
	}
	var err error
	if w.Line, err = lineToWire(s.Line); err != nil {
		return err
	}
	if s.BlockDevice {
		w.Frontend = proto.Frontend_FRONTEND_BLOCK
	}
	for _, m := range s.Members {
		w.Members = append(w.Members, memberToWire(m))
	}
	_, err = d.rpc.EngineStart(ctx, w)
	return refusalFromWire(err)
}

// StopEngine implements engine.DataPlane.
func (d *dataPlane) StopEngine(ctx context.Context, name, session string, force bool) error {
	_, err := d.rpc.EngineStop(ctx, &proto.EngineRef{Name: name, Session: session, Force: force})
	if status.Code(err) == codes.FailedPrecondition {
		return &engine.InUse{Message: inUse(status.Convert(err).Message(), d.users(name))}
	}
	return err
}

// inUse adds the users of the device to the data plane's message, if they are known.
func inUse(message string, users []string) string {
	if len(users) == 0 {
		return message
	}
	return message + "; it is " + strings.Join(users, ", ")
}

// AddReplica implements engine.DataPlane.
func (d *dataPlane) AddReplica(ctx context.Context, name, session string, m engine.Member, bytesPerSecond int64) error {
	_, err := d.rpc.EngineAddReplica(ctx, &proto.EngineMemberRequest{
		Name: name, Session: session, BandwidthBytesPerSecond: bytesPerSecond,
		Member: memberToWire(m),
	})
	return err
}

func memberToWire(m engine.Member) *proto.Member {
	return &proto.Member{Name: m.Name, Uid: m.UID, Address: m.Address, Tls: m.TLS}
}

// ExpandEngine implements engine.DataPlane.
func (d *dataPlane) ExpandEngine(ctx context.Context, name, session string, sizeBytes int64) error {
	_, err := d.rpc.EngineExpand(ctx, &proto.EngineExpandRequest{Name: name, Session: session, SizeBytes: sizeBytes})
	return err
}

// enginePlane is the data plane for the engine controller. For that controller a replica is a member of an engine, and
// its removal only expels it, which deletes nothing.
type enginePlane struct{ *dataPlane }

// RemoveReplica implements engine.DataPlane.
func (e enginePlane) RemoveReplica(ctx context.Context, name, session, replica string) error {
	_, err := e.rpc.EngineRemoveReplica(ctx, &proto.EngineMemberRequest{
		Name: name, Session: session, Member: &proto.Member{Name: replica},
	})
	return err
}

// RecordEpoch implements engine.DataPlane.
func (d *dataPlane) RecordEpoch(ctx context.Context, name, session string, epoch longhorn.Epoch, line layers.Line) error {
	text, err := lineToWire(line)
	if err != nil {
		return err
	}
	_, err = d.rpc.EngineRecordEpoch(ctx, &proto.EpochRecord{Name: name, Session: session, Epoch: epochToWire(&epoch), Line: text})
	return err
}

func replicaToWire(s replica.Spec) *proto.ReplicaSpec {
	return &proto.ReplicaSpec{
		Name: s.Name, Volume: s.Volume, Uid: s.UID, Directory: s.Directory,
		DiskPath: s.DiskPath, DiskUuid: s.DiskUUID, SizeBytes: s.SizeBytes, Secret: s.Secret,
		ReserveBytes: s.ReserveBytes,
	}
}

func epochToWire(e *longhorn.Epoch) *proto.Epoch {
	if e == nil {
		return nil
	}
	return &proto.Epoch{Generation: e.Generation, Counter: e.Counter, Members: e.Members}
}

func epochFromWire(e *proto.Epoch) *longhorn.Epoch {
	if e == nil {
		return nil
	}
	return &longhorn.Epoch{Generation: e.GetGeneration(), Counter: e.GetCounter(), Members: e.GetMembers()}
}

// unlessInTime turns the time-out of a call about a replica into a refusal, which users of the replica see. The state
// shows whether the call was carried out.
func unlessInTime(err error) error {
	if status.Code(err) != codes.DeadlineExceeded {
		return err
	}
	return fmt.Errorf("instance manager: %w", &types.Refusal{Reason: types.ReasonTimedOut, Message: "no answer in time: " + status.Convert(err).Message()})
}

// refusalFromWire turns errors that an immediate retry cannot fix into refusals. These are FAILED_PRECONDITION, whose
// reason is in the status's ErrorInfo detail, and INVALID_ARGUMENT and INTERNAL, which a failing disk causes. Any other
// error stays as it is, such as a process that does not answer.
func refusalFromWire(err error) error {
	refusal := &types.Refusal{Message: status.Convert(err).Message()}
	switch status.Code(err) {
	case codes.FailedPrecondition:
		refusal.Reason = "Refused"
	case codes.InvalidArgument:
		refusal.Reason = string(dataplane.InvalidSpec)
	case codes.Internal:
		refusal.Reason = string(dataplane.IOError)
	default:
		return err
	}
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			refusal.Reason = info.GetReason()
		}
	}
	return fmt.Errorf("instance manager: %w", refusal)
}
