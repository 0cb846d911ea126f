package share

import (
	"github.com/sirupsen/logrus"

	"github.com/longhorn-lep/longhorn-manager/share/firewall"
	"github.com/longhorn-lep/longhorn-manager/share/ganesha"
	"github.com/longhorn-lep/longhorn-manager/util/boottime"
)

// entrance is the NFS port and its rules, without a server. It is opened first: clients find this pod before the volume
// is attached here.
//
//	refusals dropped ► only listed clients ► one source address ► port open ► volume mounted ► server
//	                                                              clients connect and wait     answers
//
// Each rule must be in force before the port is open: a connection keeps the source address that it had at its start.
type entrance struct {
	clients     *firewall.ClientFilter
	isOneSource bool              // the server sees one source address for all clients
	listener    *ganesha.Listener // nil: the port is closed until a server runs
}

// entranceSteps are the steps of opening, in their order.
type entranceSteps struct {
	dropRefusals, showOneSource func() error
	limitClients                func()
	listen                      func() (*ganesha.Listener, error)
}

// openEntrance opens the port. limited receives whether the kernel limits the clients.
func openEntrance(o Options, limited func(error)) *entrance {
	clients := firewall.NewClientFilter(o.ClientsFile, o.NFSPort, boottime.Now, limited, o.Log)
	e := entranceSteps{
		dropRefusals:  func() error { return firewall.DropRefusals(o.NFSPort) },
		limitClients:  clients.Update,
		showOneSource: func() error { return firewall.ShowOneSource(o.NFSPort) },
		listen:        func() (*ganesha.Listener, error) { return ganesha.Listen(o.NFSPort, o.WakeLibrary) },
	}.open(o.Log)
	e.clients = clients
	return e
}

// open logs failures: the share works without the entrance, but clients wait longer, or lose their locks.
func (s entranceSteps) open(log *logrus.Entry) *entrance {
	e := &entrance{}
	if err := s.dropRefusals(); err != nil {
		log.WithError(err).Warn("Cannot drop the refusals of the NFS port. Clients that find no server retry after 3 s instead of 1 s")
	}
	s.limitClients()
	err := s.showOneSource()
	if err != nil {
		log.WithError(err).Warn("The kernel cannot show the server one source address for all clients. A client loses its locks if its address changes when the share moves")
	}
	e.isOneSource = err == nil
	if e.listener, err = s.listen(); err != nil {
		log.WithError(err).Warn("The NFS port stays closed while no server runs. Clients that find no server retry after 1 s")
	}
	return e
}

// close closes the port. If a server has not exited, the port stays open for it.
func (e *entrance) close() {
	_ = e.listener.Close() // the process exits soon
	e.listener = nil
}
