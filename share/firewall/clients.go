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

// Doorkeeper keeps unlisted clients from the NFS port of this network. The list is in a file
// (types.ShareClientsConfigMap) that may change at any time.
//
//	the file                                packets that reach the port
//	has addresses and networks              from these, and from this machine; others get no answer
//	says any, and that a person set it      from all
//	says any for another reason             as before: a leader of an earlier release opens all shares while it does not
//	                                        know one node's addresses
//	is not a list, or does not exist        as before
//
// If there was no list before, "as before" means only this machine: an unlisted client that is admitted reads all
// files, and may change them.
//
// The list applies to established connections, too. The same rule drops all further packets of clients that are no
// longer listed, in the same step, so no connection can be opened in between. It needs nothing else from the kernel.
// SOCK_DESTROY would need CONFIG_INET_DIAG_DESTROY, and shows the server's sockets with the one source address of all
// clients. The server drops the state of such a client when its lease ends.
type Doorkeeper struct {
	file   string
	limit  func([]netip.Prefix) error
	told   func(error) // may be nil
	log    *logrus.Entry
	now    func() time.Duration
	read   time.Duration // when the list was last read; 0: never
	text   string        // the list that was last read
	closed bool          // to all clients, while there was no list yet
	kernel error         // the last result of limit
	failed string        // the last message; "": no error
}

// NewDoorkeeper returns a Doorkeeper for a port. now is the time since some fixed moment. told receives the kernel's
// last answer at each reading; nil: the kernel limits clients according to the list.
func NewDoorkeeper(file string, port int, now func() time.Duration, told func(error), log *logrus.Entry) *Doorkeeper {
	return &Doorkeeper{
		file: file, log: log, now: now, told: told,
		limit: func(networks []netip.Prefix) error { return limitClients(port, networks) },
	}
}

// Look reads the list if that is due, and makes the kernel apply it. A failure is logged once, and tried again.
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
		d.log.WithError(err).Warn("Cannot apply the list of clients. The previous list stays in force. Without a previous list, no client may mount the share")
	}
}

// ask makes the kernel limit the clients, and stores its answer.
func (d *Doorkeeper) ask(networks []netip.Prefix) error {
	d.kernel = d.limit(networks)
	return d.kernel
}

// readClients reads the list. ShareClientsAny is valid only if the other file says that a person has set it.
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
		return "", fmt.Errorf("file %s allows any client to mount the share, but the reason next to it is %q and not %q", file, reason, types.ReasonClientsAllowedBySetting)
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

// parseClients parses a list. The result is nil for types.ShareClientsAny, else the networks, one per line. An empty
// list is an error.
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
