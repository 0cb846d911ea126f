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
	"github.com/longhorn-lep/longhorn-manager/util/repeat"
)

// readInterval is how often the list of clients is read. The kubelet brings a change to the pod within a minute or two.
const readInterval = 2 * time.Second

// ClientFilter keeps unlisted clients from the NFS port of this network. The list is in a file
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
type ClientFilter struct {
	file     string
	limit    func([]netip.Prefix) error
	onResult func(error) // may be nil
	log      *logrus.Entry
	now      func() time.Duration
	readAt   time.Duration // when the list was last read; 0: never
	text     string        // the list that was last read
	closed   bool          // to all clients, while there was no list yet
	kernel   error         // the last result of limit
	failed   repeat.Filter // the last error
}

// NewClientFilter returns a ClientFilter for a port. now is the time since some fixed moment. onResult receives the
// kernel's last answer at each reading; nil: the kernel limits clients according to the list.
func NewClientFilter(file string, port int, now func() time.Duration, onResult func(error), log *logrus.Entry) *ClientFilter {
	return &ClientFilter{
		file: file, log: log, now: now, onResult: onResult,
		limit: func(networks []netip.Prefix) error { return limitClients(port, networks) },
	}
}

// Update reads the list if that is due, and makes the kernel apply it. A failure is logged once, and tried again.
func (d *ClientFilter) Update() {
	now := d.now()
	if d.readAt != 0 && now-d.readAt < readInterval {
		return
	}
	first := d.readAt == 0
	d.readAt = now
	text, err := readClients(d.file)
	if err == nil && (first || d.failed.Last() != "" || text != d.text) {
		err = d.applyList(text)
	}
	if err != nil && d.text == "" && !d.closed {
		refusal := d.setKernel([]netip.Prefix{})
		d.closed = refusal == nil
		err = errors.Join(err, refusal)
	}
	if d.onResult != nil {
		d.onResult(d.kernel)
	}
	if d.failed.NoteError(err) {
		d.log.WithError(err).Warn("Cannot apply the list of clients. The previous list stays in force. Without a previous list, no client may mount the share")
	}
}

// setKernel makes the kernel limit the clients, and stores its answer.
func (d *ClientFilter) setKernel(networks []netip.Prefix) error {
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

func (d *ClientFilter) applyList(text string) error {
	networks, err := parseClients(text)
	if err != nil {
		return fmt.Errorf("file %s: %w", d.file, err)
	}
	if err := d.setKernel(networks); err != nil {
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
	lines := strings.Fields(text)
	if len(lines) == 1 && lines[0] == types.ShareClientsAny {
		return nil, nil
	}
	var networks []netip.Prefix
	for _, line := range lines {
		network, err := types.ParseShareClient(line)
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
