package instance

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/longhorn-lep/longhorn-manager/engine"
	"github.com/longhorn-lep/longhorn-manager/nbd"
	"github.com/longhorn-lep/longhorn-manager/replica"
)

// blockSize is that of every export: file systems on a volume count on 512 for ever.
var blockSize = nbd.BlockSize{Min: replica.BlockBytes, Preferred: 4096}

// dataExport is the name under which an engine opens a replica.
type dataExport struct {
	volume, replica string
	generation      int64
	session         string
}

func (d dataExport) String() string {
	return fmt.Sprintf("rw/%s/%s/%d/%s", d.volume, d.replica, d.generation, d.session)
}

func parseDataExport(name string) (dataExport, error) {
	parts := strings.Split(name, "/")
	if len(parts) != 5 || parts[0] != "rw" || parts[1] == "" || parts[2] == "" || parts[4] == "" {
		return dataExport{}, nbd.ErrUnknownExport
	}
	generation, err := strconv.ParseInt(parts[3], 10, 64)
	if err != nil || strconv.FormatInt(generation, 10) != parts[3] {
		return dataExport{}, nbd.ErrUnknownExport
	}
	return dataExport{volume: parts[1], replica: parts[2], generation: generation, session: parts[4]}, nil
}

// fencedText begins the refusal of an engine whose time is over; NBD has only texts to tell refusals apart.
const fencedText = "fenced: "

// isFenced tells whether a refusal by another process says that the engine's time is over.
func isFenced(err error) bool {
	var policy *nbd.PolicyError
	return errors.As(err, &policy) && strings.HasPrefix(policy.Text, fencedText)
}

// dataExporter serves replicas to engines in other processes. The server has checked the secret.
type dataExporter struct{ replicas *replicaHost }

func (x *dataExporter) List(context.Context) []string { return nil }

func (x *dataExporter) Open(ctx context.Context, name string, c nbd.ConnInfo) (*nbd.Export, error) {
	d, err := parseDataExport(name)
	if err != nil {
		return nil, err
	}
	e := x.replicas.find(d.replica)
	if e == nil || e.replica == nil || e.spec.GetVolume() != d.volume {
		return nil, fmt.Errorf("%w: replica %s is not served here", nbd.ErrUnknownExport, d.replica)
	}
	export := &nbd.Export{Name: name, Size: e.replica.Size(), BlockSize: blockSize}
	if c.InfoOnly {
		return export, nil
	}
	ctx, cancel := context.WithTimeout(ctx, admitTimeout)
	defer cancel()
	session, err := e.replica.Admit(ctx, d.generation, d.session)
	switch {
	case errors.Is(err, replica.ErrFenced):
		return nil, nbd.ErrPolicy(fencedText + err.Error())
	case err != nil:
		return nil, nbd.ErrPolicy(err.Error())
	}
	export.Backend = session
	export.Closed = cutWhenDone(session.Done(), c.Drop, session.Close)
	return export, nil
}

// cutWhenDone drops a connection when what it serves has ended, and returns its Closed, which ends what it serves.
func cutWhenDone(done <-chan struct{}, drop func(), end func() error) (closed func()) {
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		<-done
		drop()
	}()
	return func() {
		_ = end() // closes done; there is nobody to tell of an error
		<-watched
	}
}

// toolExporter serves tools on this node: whoever may open the socket may read every volume.
type toolExporter struct {
	replicas *replicaHost
	engines  *engineHost
}

func (x *toolExporter) List(context.Context) []string {
	names := []string{}
	for _, r := range x.replicas.states() {
		names = append(names, "ro/"+r.GetName())
	}
	for _, e := range x.engines.states() {
		names = append(names, "engine/"+e.GetVolume())
	}
	return names
}

func (x *toolExporter) Open(_ context.Context, name string, c nbd.ConnInfo) (*nbd.Export, error) {
	kind, rest, _ := strings.Cut(name, "/")
	switch {
	case kind == "ro" && isElement(rest):
		return x.openReplica(name, rest, c)
	case kind == "engine" && isElement(rest):
		return x.openEngine(name, rest, c)
	}
	return nil, fmt.Errorf("%w: the exports here are ro/<replica> and engine/<volume>", nbd.ErrUnknownExport)
}

func (x *toolExporter) openReplica(export, name string, c nbd.ConnInfo) (*nbd.Export, error) {
	e := x.replicas.find(name)
	switch {
	case e == nil:
		return nil, fmt.Errorf("%w: replica %s is not served here", nbd.ErrUnknownExport, name)
	case e.replica == nil:
		return nil, nbd.ErrPolicy(e.refused.Error())
	}
	v, err := e.replica.View()
	if err != nil {
		return nil, nbd.ErrPolicy(fmt.Sprintf("replica %s: %v", name, err))
	}
	described := &nbd.Export{
		Name: export, Description: "replica of volume " + e.spec.GetVolume(), Size: v.Size(), ReadOnly: true, MultiConn: true,
		BlockSize: blockSize, Backend: v,
	}
	if c.InfoOnly {
		return described, v.Close()
	}
	described.Closed = cutWhenDone(v.Done(), c.Drop, v.Close)
	return described, nil
}

func (x *toolExporter) openEngine(export, volume string, c nbd.ConnInfo) (*nbd.Export, error) {
	e := x.engines.ofVolume(volume)
	if e == nil {
		return nil, fmt.Errorf("%w: no engine of volume %s runs here", nbd.ErrUnknownExport, volume)
	}
	if s := e.engine.State(); s.Phase != engine.PhaseRunning {
		return nil, nbd.ErrPolicy(fmt.Sprintf("the engine of volume %s is %s", volume, s.Phase))
	}
	described := &nbd.Export{
		Name: export, Description: "volume " + volume, Size: e.spec.GetSizeBytes(), ReadOnly: !e.socket.writable, MultiConn: true,
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
