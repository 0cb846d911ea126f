package instance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/sirupsen/logrus"

	"github.com/longhorn-lep/longhorn-manager/dataplane/nbd"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica"
	"github.com/longhorn-lep/longhorn-manager/dataplane/replica/fsys"
	"github.com/longhorn-lep/longhorn-manager/util/unixsocket"
)

// CopyOptions define which replica ServeCopy serves, and where.
type CopyOptions struct {
	// Directory is the replica's directory, an absolute path; its parent directory must also exist.
	Directory string
	// Socket is the path of a unix socket, created for this user only; nothing may exist there.
	Socket string
	// Ready, if set, is called when tools can connect, with the name of the export.
	Ready func(export string)
	// Log receives the log messages; nil discards them.
	Log *logrus.Entry
}

// ServeCopy serves one replica's directory to tools, read only, until ctx ends. It needs only the directory, which must
// not be open elsewhere, and writes nothing to it. The export is ro/<replica>; the empty name means the same export. A
// directory that is not a sound replica is refused with a reason. Only its intent map may be damaged.
func ServeCopy(ctx context.Context, opts CopyOptions) (err error) {
	if opts.Log == nil {
		l := logrus.New()
		l.SetOutput(io.Discard)
		opts.Log = logrus.NewEntry(l)
	}
	spec, err := replica.Inspect(fsys.Host{}, opts.Directory)
	if err != nil {
		return fmt.Errorf("examine the replica directory: %w", err)
	}
	r, err := replica.OpenCopy(fsys.Host{}, opts.Directory, spec, replica.Options{Log: opts.Log})
	if err != nil {
		return fmt.Errorf("open the replica directory: %w", err)
	}
	defer func() { err = errors.Join(err, r.Close(context.WithoutCancel(ctx))) }()
	if _, err := os.Lstat(opts.Socket); !errors.Is(err, os.ErrNotExist) {
		return errors.Join(fmt.Errorf("create socket %s: %w", opts.Socket, os.ErrExist), err) // a running manager may own it
	}
	l, err := unixsocket.Listen(opts.Socket)
	if err != nil {
		return err
	}
	x := &copyExporter{name: "ro/" + spec.Name, replica: r}
	server := nbd.NewServer(x, nbd.ServerOptions{Log: opts.Log})
	opts.Log.WithFields(logrus.Fields{"export": x.name, "description": describe(r)}).Info("The replica can be read")
	if opts.Ready != nil {
		opts.Ready(x.name)
	}
	err = server.Serve(ctx, l)
	draining, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	if cut := server.Shutdown(draining); cut != nil {
		opts.Log.WithError(cut).Warn("Closed connections that did not end in time")
	}
	return err
}

// copyExporter serves one replica.
type copyExporter struct {
	name    string
	replica *replica.Replica
}

func (x *copyExporter) List(context.Context) []string { return []string{x.name} }

func (x *copyExporter) Open(_ context.Context, name string, c nbd.ConnInfo) (*nbd.Export, error) {
	if name != "" && name != x.name {
		return nil, fmt.Errorf("%w: this socket offers only the export %s", nbd.ErrUnknownExport, x.name)
	}
	return exportView(x.name, x.replica, (*replica.Replica).View, func() {}, nil, c)
}
