package instance

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/longhorn-lep/longhorn-manager/dataplane/engine"
	"github.com/longhorn-lep/longhorn-manager/dataplane/instance/proto"
	"github.com/longhorn-lep/longhorn-manager/dataplane/membership"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica"
)

// ofRequest finds the engine with the members that a request changes.
func (h *engineHost) ofRequest(r *proto.EngineMemberRequest) (*hostedEngine, error) {
	if !isElement(r.GetMember().GetName()) || r.GetBandwidthBytesPerSecond() < 0 {
		return nil, fmt.Errorf("%w: replica name %q must not be empty or contain '/', and the bandwidth of %d bytes per second must not be negative", errInvalid, r.GetMember().GetName(), r.GetBandwidthBytesPerSecond())
	}
	e := h.find(r.GetName())
	if e == nil {
		return nil, refuse(reasonNotHosted, "engine %s does not exist on this node", r.GetName())
	}
	return e, nil
}

func (s *service) EngineAddReplica(_ context.Context, r *proto.EngineMemberRequest) (*proto.Empty, error) {
	return &proto.Empty{}, toStatus(s.instance.engines.addReplica(r))
}

// addReplica starts to make a replica a member.
func (h *engineHost) addReplica(r *proto.EngineMemberRequest) error {
	e, err := h.ofRequest(r)
	if err != nil {
		return err
	}
	return e.engine.AddReplica(r.GetSession(), h.member(e.spec, r.GetMember()), r.GetBandwidthBytesPerSecond())
}

func (s *service) EngineRemoveReplica(_ context.Context, r *proto.EngineMemberRequest) (*proto.Empty, error) {
	return &proto.Empty{}, toStatus(s.instance.engines.removeReplica(r))
}

// removeReplica ends a rebuild or expels a member.
func (h *engineHost) removeReplica(r *proto.EngineMemberRequest) error {
	e, err := h.ofRequest(r)
	if err != nil {
		return err
	}
	return e.engine.RemoveReplica(r.GetSession(), r.GetMember().GetName())
}

// refuses asks a replica in another process whether it has admitted a higher generation; if so, the error wraps
// engine.ErrFenced. It opens nothing.
func (h *engineHost) refuses(ctx context.Context, s *proto.EngineSpec, m engine.Member) error {
	name := dataExport{volume: s.GetVolume(), replica: m.Name, generation: s.GetGeneration(), session: s.GetSession()}
	_, err := nbd.Describe(ctx, "tcp", m.Address, name.String(), nbd.DialOptions{Secret: s.GetSecret(), TLS: m.TLS, Timeout: admitTimeout, Log: h.log})
	return asFenced(err)
}

// fencedText is the start of every error text that tells a remote engine that it was fenced; in NBD only the texts
// distinguish refusals.
const fencedText = "fenced: "

// isFenced reports whether an error of a replica, local or remote, says that the engine was fenced.
func isFenced(err error) bool {
	var policy *nbd.PolicyError
	var sent *nbd.Error
	switch {
	case errors.Is(err, replica.ErrFenced):
		return true
	case errors.As(err, &policy):
		return strings.HasPrefix(policy.Text, fencedText)
	case errors.As(err, &sent):
		return sent.Errno == nbd.ESHUTDOWN && strings.HasPrefix(sent.Msg, fencedText)
	}
	return false
}

// asFenced makes such an error wrap engine.ErrFenced.
func asFenced(err error) error {
	if err == nil || !isFenced(err) {
		return err
	}
	return fmt.Errorf("%w: %w", engine.ErrFenced, err)
}

// tellsFenced returns a session as it is served over the network.
func tellsFenced(s engine.Replica) nbd.Backend {
	return translated{s, func(err error) error {
		if errors.Is(err, replica.ErrFenced) {
			return &nbd.Error{Errno: nbd.ESHUTDOWN, Msg: fencedText + err.Error()}
		}
		return err
	}}
}

// translated is a replica with errors that pass through a function.
type translated struct {
	engine.Replica
	say func(error) error
}

func (t translated) ReadAt(ctx context.Context, p []byte, off int64) error {
	return t.say(t.Replica.ReadAt(ctx, p, off))
}

func (t translated) WriteAt(ctx context.Context, p []byte, off int64, fua bool) error {
	return t.say(t.Replica.WriteAt(ctx, p, off, fua))
}

func (t translated) Flush(ctx context.Context) error { return t.say(t.Replica.Flush(ctx)) }

func (t translated) Trim(ctx context.Context, off, length int64, fua bool) error {
	return t.say(t.Replica.Trim(ctx, off, length, fua))
}

func (t translated) Zero(ctx context.Context, off, length int64, flags nbd.ZeroFlags) error {
	return t.say(t.Replica.Zero(ctx, off, length, flags))
}

func (t translated) Extents(ctx context.Context, off, length int64) ([]nbd.Extent, error) {
	e, err := t.Replica.Extents(ctx, off, length)
	return e, t.say(err)
}

func (t translated) Control(ctx context.Context, op uint16, payload []byte) ([]byte, error) {
	reply, err := t.Replica.Control(ctx, op, payload)
	return reply, t.say(err)
}

// cautious is a replica for an engine: no rebuild of it starts on a disk that does not respond. Such a rebuild would
// end soon, and would have made the replica's data worthless.
type cautious struct {
	*replica.Session
	silent func() error // why the disk cannot be used; nil if it can
}

// forEngine returns a session for an engine.
func (h *replicaHost) forEngine(name string, s *replica.Session) engine.Replica {
	return cautious{s, func() error { return h.silent(name) }}
}

// Control is the session's Control, unless it starts a rebuild.
func (c cautious) Control(ctx context.Context, op uint16, payload []byte) ([]byte, error) {
	if op == membership.OpBeginRebuild {
		if err := c.silent(); err != nil {
			return nil, &nbd.Error{Errno: nbd.EIO, Msg: fmt.Sprintf("%s: %v", reasonDiskNotResponding, err)}
		}
	}
	return c.Session.Control(ctx, op, payload)
}

// localMember is a replica of this process, from the view of an engine.
type localMember struct {
	translated
	session *replica.Session
}

// Err returns the reason why the session has ended.
func (m *localMember) Err() error { return m.say(m.session.Err()) }

// remoteMember is a replica of another process, from the view of an engine.
type remoteMember struct {
	translated
	client *nbd.Client
}

// Err returns the reason why the connection has ended.
func (m *remoteMember) Err() error { return m.say(m.client.Err()) }

// Grow implements an optional method of engine.Replica: the peer has shown that it is larger now.
func (m *remoteMember) Grow(sizeBytes int64) { m.client.Grow(sizeBytes) }

// Cut ends the connection at once: see the optional methods of engine.Replica.
func (m *remoteMember) Cut(cause error) { m.client.Cut(cause) }

// WriteAsync is WriteAt without waiting: done is called once and must not block.
func (m *remoteMember) WriteAsync(p []byte, off int64, fua bool, done func(error)) {
	m.client.WriteAsync(p, off, fua, func(err error) { done(m.say(err)) })
}
