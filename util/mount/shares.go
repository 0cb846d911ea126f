package mount

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Servers lists the servers of the NFS file systems that are mounted below a directory, each once and in order. It
// reads only the mount table.
func (s *System) Servers(dir string) ([]netip.Addr, error) {
	table, err := s.files.Table()
	if err != nil {
		return nil, fmt.Errorf("reading the mount table: %w", err)
	}
	var servers []netip.Addr
	for _, e := range table {
		if server, ok := e.server(); ok && strings.HasPrefix(e.Path, strings.TrimSuffix(dir, "/")+"/") {
			servers = append(servers, server)
		}
	}
	slices.SortFunc(servers, netip.Addr.Compare)
	return slices.Compact(servers), nil
}

// MountOf returns the first path below a directory at which an NFS file system of a server is mounted; "": none. It
// reads only the mount table.
func (s *System) MountOf(dir string, server netip.Addr) (string, error) {
	table, err := s.files.Table()
	if err != nil {
		return "", fmt.Errorf("reading the mount table: %w", err)
	}
	for _, e := range table {
		if of, ok := e.server(); ok && of == server && strings.HasPrefix(e.Path, strings.TrimSuffix(dir, "/")+"/") {
			return e.Path, nil
		}
	}
	return "", nil
}

// server is the server in an Export.Source.
func (e Entry) server() (netip.Addr, bool) {
	host, _, ok := strings.Cut(e.Source, ":/")
	if !ok || !e.IsNFS() {
		return netip.Addr{}, false
	}
	server, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
	return server.Unmap(), err == nil
}
