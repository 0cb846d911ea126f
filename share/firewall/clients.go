package firewall

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// clientsRound is how often the list of clients is read. The kubelet brings a change to the pod within a minute or two.
const clientsRound = 2 * time.Second

// Doorkeeper keeps strangers from the NFS port of this network, by the list in a file (types.ShareClientsConfigMap) that may change at any time.
//
//	the file                                what reaches the port
//	has addresses and networks              what these send, and this machine; others get no answer
//	says any, and that a person set it      what anyone sends
//	says any for another reason             as before: a leader of an earlier release opens all shares while it does not know one node's addresses
//	is not a list, or is not there          as before
//
// As before is this machine alone where there was no list before: a stranger who is let in reads all files, and may change them.
//
// The list applies to established connections, too. The same rule drops all further packets of clients that are no longer listed, in the
// same step, so no connection can come between, and it needs nothing of the kernel but the rule (SOCK_DESTROY needs CONFIG_INET_DIAG_DESTROY, and
// shows the server's sockets with the one source of all clients). The server drops the state of such a client when its lease ends.
type Doorkeeper struct {
	file   string
	limit  func([]netip.Prefix) error
	told   func(error) // may be nil
	log    *logrus.Entry
	now    func() time.Duration
	read   time.Duration // when it was read last; 0: never
	text   string        // the list that was read last
	closed bool          // to all clients, where there was no list yet
	kernel error         // what limit returned last
	failed string        // what was told last; "": nothing is wrong
}

// NewDoorkeeper keeps strangers from a port. now is the time since some fixed moment; told receives what the kernel answered last at each
// reading, nil: it limits clients as the list says.
func NewDoorkeeper(file string, port int, now func() time.Duration, told func(error), log *logrus.Entry) *Doorkeeper {
	return &Doorkeeper{
		file: file, log: log, now: now, told: told,
		limit: func(networks []netip.Prefix) error { return limitClients(port, networks) },
	}
}

// Look reads the list if that is due, and has the kernel follow it. What cannot be done is told once, and tried again.
func (d *Doorkeeper) Look() {
	now := d.now()
	if d.read != 0 && now-d.read < clientsRound {
		return
	}
	first := d.read == 0
	d.read = now
	text, err := readClients(d.file)
	if err == nil && (first || d.failed != "" || text != d.text) {
		err = d.follow(text)
	}
	if err != nil && d.text == "" && !d.closed {
		refusal := d.ask([]netip.Prefix{})
		d.closed = refusal == nil
		err = errors.Join(err, refusal)
	}
	if d.told != nil {
		d.told(d.kernel)
	}
	switch {
	case err == nil:
		d.failed = ""
	case err.Error() != d.failed:
		d.failed = err.Error()
		d.log.WithError(err).Warn("Who may mount the share is as before; where no list was there before, no client may")
	}
}

// ask has the kernel limit the clients, and keeps its answer.
func (d *Doorkeeper) ask(networks []netip.Prefix) error {
	d.kernel = d.limit(networks)
	return d.kernel
}

// readClients reads the list. ShareClientsAny is one only where the file beside it says that a person wants it.
func readClients(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil || strings.TrimSpace(string(text)) != types.ShareClientsAny {
		return string(text), err
	}
	reason, err := os.ReadFile(filepath.Join(filepath.Dir(file), types.ShareClientsReasonKey))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if strings.TrimSpace(string(reason)) != types.ReasonClientsAllowedBySetting {
		return "", fmt.Errorf("file %s lets any client mount, and not because a setting says so: %q", file, reason)
	}
	return string(text), nil
}

func (d *Doorkeeper) follow(text string) error {
	networks, err := parseClients(text)
	if err != nil {
		return fmt.Errorf("file %s: %w", d.file, err)
	}
	if err := d.ask(networks); err != nil {
		return err
	}
	d.text = text
	if networks == nil {
		d.log.Info("Any client may mount the share")
	} else {
		d.log.WithField("clients", len(networks)).Info("Only listed clients may mount the share")
	}
	return nil
}

// parseClients reads a list: nil for types.ShareClientsAny, else networks, one a line. An empty list is an error.
func parseClients(text string) ([]netip.Prefix, error) {
	words := strings.Fields(text)
	if len(words) == 1 && words[0] == types.ShareClientsAny {
		return nil, nil
	}
	var networks []netip.Prefix
	for _, word := range words {
		network, err := types.ParseShareClient(word)
		if err != nil {
			return nil, err
		}
		networks = append(networks, network)
	}
	if len(networks) == 0 {
		return nil, errors.New("the list is empty")
	}
	return networks, nil
}
