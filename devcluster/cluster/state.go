package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/longhorn-lep/longhorn-manager/devcluster/config"
	"github.com/longhorn-lep/longhorn-manager/devcluster/machine"
	"github.com/longhorn-lep/longhorn-manager/devcluster/proc"
)

// State is the record of what exists. It is saved before something is created, so that a later command finds incomplete
// parts after a crash.
type State struct {
	// Complete is set when up has finished.
	Complete bool        `json:"complete"`
	APIPort  int         `json:"apiPort"`
	Plane    proc.Record `json:"plane"`
	// APIServer is the order that a command gave to the API server, "" for run.
	APIServer machine.Order `json:"apiServer,omitempty"`
	Nodes     []Node        `json:"nodes"`
	Forwards  []Forward     `json:"forwards"`
	// Images are archives below DIR/images, in the order in which they were loaded.
	Images []string `json:"images"`
	// Restore holds kernel settings that were raised: the previous value, by path.
	Restore map[string]string `json:"restore,omitempty"`
	// MadeDirs are directories outside DIR that did not exist before.
	MadeDirs []string `json:"madeDirs,omitempty"`
}

// Node is one node of the cluster.
type Node struct {
	Name   string      `json:"name"`
	Index  int         `json:"index"`
	FSType string      `json:"fsType"`
	Init   proc.Record `json:"init"`
	// Stopped: a command turned the node off.
	Stopped bool `json:"stopped"`
	// Cut: the router drops the node's packets.
	Cut bool `json:"cut"`
	// Frozen: the node's processes are suspended.
	Frozen bool `json:"frozen,omitempty"`
	// Guest is set for a node with a kernel of its own.
	Guest *Guest `json:"guest,omitempty"`
}

func (n Node) config() config.Node {
	c := config.Node{Name: n.Name, Index: n.Index}
	if n.Guest != nil {
		c.Kernel = KernelUML
	}
	return c
}

// Forward is a process that passes on connections from the real machine.
type Forward struct {
	Listen string      `json:"listen"`
	Target string      `json:"target"`
	From   string      `json:"from"`
	Proc   proc.Record `json:"proc"`
}

// Errors about the object that a command names.
var (
	ErrNoCluster   = errors.New("there is no cluster; make one with: devcluster up")
	ErrUnknownNode = errors.New("no such node")
	ErrStopped     = errors.New("the node is stopped; start it with: devcluster start-node NAME")
)

func (s *State) node(name string) (*Node, error) {
	for i := range s.Nodes {
		if s.Nodes[i].Name == name {
			return &s.Nodes[i], nil
		}
	}
	names := make([]string, 0, len(s.Nodes))
	for _, n := range s.Nodes {
		names = append(names, n.Name)
	}
	return nil, fmt.Errorf("%w: %q; there are %v", ErrUnknownNode, name, names)
}

// runningNode is like node, for commands that need a running node.
func (s *State) runningNode(name string) (*Node, error) {
	n, err := s.node(name)
	if err != nil {
		return nil, err
	}
	if !n.Init.IsAlive() {
		return nil, fmt.Errorf("node %s: %w", name, ErrStopped)
	}
	return n, nil
}

// freeIndex returns the lowest index that no node has.
func (s *State) freeIndex() (int, error) {
	used := map[int]bool{}
	for _, n := range s.Nodes {
		used[n.Index] = true
	}
	for i := 1; i <= config.MaxNodes; i++ {
		if !used[i] {
			return i, nil
		}
	}
	return 0, fmt.Errorf("there are %d nodes already", config.MaxNodes)
}

// addNode adds a node by name, in the order of indexes.
func (s *State) addNode(name, fsType string, guest *Guest) (*Node, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	if _, err := s.node(name); err == nil {
		return nil, fmt.Errorf("there is a node %s already", name)
	}
	index, err := s.freeIndex()
	if err != nil {
		return nil, err
	}
	s.Nodes = append(s.Nodes, Node{Name: name, Index: index, FSType: fsType, Guest: guest, Stopped: true})
	sort.Slice(s.Nodes, func(i, j int) bool { return s.Nodes[i].Index < s.Nodes[j].Index })
	return s.node(name)
}

func (s *State) removeNode(name string) {
	kept := s.Nodes[:0]
	for _, n := range s.Nodes {
		if n.Name != name {
			kept = append(kept, n)
		}
	}
	s.Nodes = kept
}

// loadState returns ErrNoCluster if the cluster does not exist.
func loadState(file string) (*State, error) {
	raw, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, ErrNoCluster
	}
	if err != nil {
		return nil, fmt.Errorf("read state: %w", err)
	}
	s := &State{}
	if err := json.Unmarshal(raw, s); err != nil {
		return nil, fmt.Errorf("parse state %s: %w", file, err)
	}
	return s, nil
}

// save replaces the whole file: a reader sees the old state or the new one.
func (s *State) save(file string) error {
	raw, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("encode state: %w", err)
	}
	tmp := file + ".new"
	if err := os.WriteFile(tmp, append(raw, '\n'), 0o600); err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	if err := os.Rename(tmp, file); err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	return nil
}

// lock blocks other commands that change the cluster, until the returned function is called. The lock is on the
// directory itself, and so leaves no file.
func (l Layout) lock() (unlock func(), err error) {
	if err := os.MkdirAll(l.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("make state directory: %w", err)
	}
	f, err := os.Open(l.Dir)
	if err != nil {
		return nil, fmt.Errorf("open state directory: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer func() { _ = f.Close() }()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("another devcluster command works on %s%s; try again when it has ended", filepath.Clean(l.Dir), holderOf(f))
		}
		return nil, fmt.Errorf("lock state directory %s: %w", filepath.Clean(l.Dir), err)
	}
	return func() { _ = f.Close() }, nil
}

// holderOf names the process that has the lock on a file, with its command; "": it is not known.
func holderOf(f *os.File) string {
	var stat unix.Stat_t
	locks, err := os.ReadFile("/proc/locks")
	if err != nil || unix.Fstat(int(f.Fd()), &stat) != nil {
		return ""
	}
	for line := range strings.Lines(string(locks)) {
		// 1: FLOCK  ADVISORY  WRITE 4711 fe:00:12345 0 EOF
		fields := strings.Fields(line)
		if len(fields) < 6 || fields[1] != "FLOCK" || !strings.HasSuffix(fields[5], fmt.Sprintf(":%d", stat.Ino)) {
			continue
		}
		command, err := os.ReadFile(filepath.Join("/proc", fields[4], "cmdline"))
		if err != nil {
			continue
		}
		text := strings.TrimSpace(strings.ReplaceAll(string(command), "\x00", " "))
		return fmt.Sprintf(" (process %s: %s)", fields[4], text)
	}
	return ""
}
