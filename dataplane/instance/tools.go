package instance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/longhorn-lep/longhorn-manager/dataplane/engine"
	"github.com/longhorn-lep/longhorn-manager/dataplane/layers"
	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica"
)

// toolExporter serves tools on this node: a process that may open the socket may read every volume.
type toolExporter struct {
	replicas *replicaHost
	engines  *engineHost
}

func (x *toolExporter) List(context.Context) []string {
	names := []string{}
	for _, r := range x.replicas.states() {
		names = append(names, "ro/"+r.GetName())
		for _, p := range r.GetPoints() {
			if p.GetFlushed() {
				names = append(names, fmt.Sprintf("ro/%s@%d", r.GetName(), p.GetPoint().GetNumber()))
			}
		}
	}
	for _, name := range x.replicas.parkedNames() {
		names = append(names, "ro/"+name)
	}
	slices.Sort(names)
	names = slices.Compact(names) // a replica may have been started or stopped between the two calls
	for _, e := range x.engines.states() {
		names = append(names, "engine/"+e.GetVolume())
	}
	return names
}

func (x *toolExporter) Open(ctx context.Context, name string, c nbd.ConnInfo) (*nbd.Export, error) {
	kind, rest, _ := strings.Cut(name, "/")
	switch {
	case kind == "ro" && isElement(rest):
		return x.openReplica(ctx, name, rest, c)
	case kind == "engine" && isElement(rest):
		return x.openEngine(name, rest, c)
	}
	return nil, fmt.Errorf("%w: this socket offers the exports ro/<replica>, ro/<replica>@<snapshot number> and engine/<volume>", nbd.ErrUnknownExport)
}

// openReplica offers a replica: its present content, or with a number the content at that point. A point can be read
// while an engine is connected.
func (x *toolExporter) openReplica(ctx context.Context, export, rest string, c nbd.ConnInfo) (*nbd.Export, error) {
	name, number, atPoint := strings.Cut(rest, "@")
	view := (*replica.Replica).View
	if atPoint {
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil || n < 1 || strconv.FormatInt(n, 10) != number {
			return nil, fmt.Errorf("%w: %q is not the number of a snapshot", nbd.ErrUnknownExport, number)
		}
		view = func(r *replica.Replica) (*replica.View, error) { return r.ViewAt(layers.Number(n)) }
	}
	e := x.replicas.find(name)
	if e == nil {
		r, release, err := x.replicas.readParked(ctx, name)
		if !errors.Is(err, errHosted) {
			return exportView(export, r, view, release, err, c)
		}
		if e = x.replicas.find(name); e == nil {
			return nil, nbd.ErrPolicy("replica " + name + " is being started or stopped")
		}
	}
	if e.replica == nil {
		return nil, nbd.ErrPolicy(e.refused.Error())
	}
	return exportView(export, e.replica, view, func() {}, nil, c)
}

// exportView offers a view of a replica, which open opens. release is called when it is no longer needed, also after an error. If err is
// set, it is the reason why there is no replica.
func exportView(
	export string, r *replica.Replica, open func(*replica.Replica) (*replica.View, error), release func(), err error, c nbd.ConnInfo,
) (*nbd.Export, error) {
	if err != nil {
		return nil, err
	}
	v, err := open(r)
	if err != nil {
		release()
		return nil, nbd.ErrPolicy(err.Error())
	}
	described := &nbd.Export{
		Name: export, Description: describe(r), Size: v.Size(), ReadOnly: true, MultiConn: true, BlockSize: blockSize, Backend: v,
	}
	end := func() error {
		err := v.Close()
		release()
		return err
	}
	if c.InfoOnly {
		return described, end()
	}
	described.Closed = cutWhenDone(v.Done(), func(<-chan struct{}) { c.Drop() }, end)
	return described, nil
}

// describe returns the information for a person who reads a replica.
func describe(r *replica.Replica) string {
	text := "replica of volume " + r.Volume()
	if caution := r.Warning(); caution != "" {
		text += ": " + caution
	}
	return text
}

func (x *toolExporter) openEngine(export, volume string, c nbd.ConnInfo) (*nbd.Export, error) {
	e := x.engines.ofVolume(volume)
	if e == nil {
		return nil, fmt.Errorf("%w: no engine of volume %s runs on this node", nbd.ErrUnknownExport, volume)
	}
	if s := e.engine.State(); s.Phase != engine.PhaseRunning {
		return nil, nbd.ErrPolicy(fmt.Sprintf("the engine of volume %s is not running; its phase is %s", volume, s.Phase))
	}
	described := &nbd.Export{
		Name: export, Description: "volume " + volume, Size: e.state().GetSizeBytes(), ReadOnly: !e.socket.writable, MultiConn: true,
		BlockSize: blockSize, Backend: e.engine.Backend(),
	}
	if c.InfoOnly {
		return described, nil
	}
	closed, ok := e.socket.connect(c.Drop)
	if !ok {
		return nil, nbd.ErrPolicy(fmt.Sprintf("the engine of volume %s is stopping", volume))
	}
	described.Closed = closed
	return described, nil
}
