package instance

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica"
)

// blockSize is the block size of every export: file systems on a volume permanently rely on 512.
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
		return nil, fmt.Errorf("%w: this node does not serve replica %s", nbd.ErrUnknownExport, d.replica)
	}
	export := &nbd.Export{Name: name, Size: e.replica.Size(), BlockSize: blockSize}
	// An engine asks whether it was fenced; an earlier release always describes the export.
	if c.InfoOnly {
		if err := e.replica.Refuses(d.generation, d.session); err != nil {
			return nil, nbd.ErrPolicy(fencedText + err.Error())
		}
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
	export.SizeNow = session.Size // the engine learns the size by OpState
	export.Backend = tellsFenced(x.replicas.forEngine(d.replica, session))
	export.Closed = cutWhenDone(session.Done(), func(gone <-chan struct{}) {
		if errors.Is(session.Err(), replica.ErrFenced) {
			// An engine that sends a request in this time learns that it was fenced, not only that the connection
			// ended.
			select {
			case <-gone:
			case <-time.After(fencedGrace):
			}
		}
		c.Drop()
	}, session.Close)
	return export, nil
}

// fencedGrace is how long the connection of a fenced engine stays open.
const fencedGrace = time.Second

// cutWhenDone calls drop when the object that a connection serves has ended on its own; drop must return soon after
// gone is closed. It returns the Closed function of the connection, which ends the object.
func cutWhenDone(done <-chan struct{}, drop func(gone <-chan struct{}), end func() error) (closed func()) {
	watched, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		<-done
		select {
		case <-gone: // end caused it; the connection must not close before end has returned
		default:
			drop(gone)
		}
	}()
	return func() {
		close(gone)
		_ = end() // closes done; there is no caller to receive an error
		<-watched
	}
}

// secretOf returns the secret that a peer must know to open an export of the TCP port.
func (h *replicaHost) secretOf(export string) ([]byte, bool) {
	if name, err := parseDataExport(export); err == nil {
		if e := h.find(name.replica); e != nil && e.spec.GetVolume() == name.volume {
			return e.spec.GetSecret(), true
		}
	}
	return h.decoy, true
}

// secrets returns the secrets of the volumes that have a replica here.
func (h *replicaHost) secrets() [][]byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([][]byte, 0, len(h.hosted))
	for _, e := range h.hosted {
		all = append(all, e.spec.GetSecret())
	}
	return all
}

// tlsOnly reports whether an export of the TCP port may be opened only over TLS.
func (h *replicaHost) tlsOnly(export string) bool {
	name, err := parseDataExport(export)
	if err != nil {
		return false
	}
	e := h.find(name.replica)
	return e != nil && e.spec.GetTlsOnly()
}

// local returns an open replica of this node to an engine that presents the volume's secret.
func (h *replicaHost) local(name, volume string, secret []byte) (*replica.Replica, bool) {
	e := h.find(name)
	if e == nil || e.replica == nil || e.spec.GetVolume() != volume || subtle.ConstantTimeCompare(secret, e.spec.GetSecret()) != 1 {
		return nil, false
	}
	return e.replica, true
}
