package ganesha

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// AdoptRecords renames records that a server of an earlier release wrote for clients that it saw at other addresses.
// Each record gets the address at which the client is seen now, source4 or source6. recovery is where Ganesha stores
// the records.
func AdoptRecords(recovery string, source4, source6 netip.Addr) error {
	dirs, err := filepath.Glob(filepath.Join(recovery, RecordsName, "node*"))
	if err != nil {
		return err
	}
	var failed error
	for _, dir := range dirs {
		if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
			continue // the link to the records in force
		}
		entries, err := os.ReadDir(dir)
		failed = errors.Join(failed, err)
		for _, e := range entries {
			if name, ok := adopted(e.Name(), source4, source6); ok && e.IsDir() {
				failed = errors.Join(failed, unix.Renameat2(unix.AT_FDCWD, filepath.Join(dir, e.Name()), unix.AT_FDCWD, filepath.Join(dir, name), unix.RENAME_NOREPLACE))
			}
		}
	}
	return failed
}

// adopted is the name of a record once its client is seen at one source. It returns false if the record has that name
// already, or is not a record of Ganesha.
func adopted(record string, source4, source6 netip.Addr) (string, bool) {
	parts := recordOfClient.FindStringSubmatch(record)
	if parts == nil {
		return "", false
	}
	address, err := netip.ParseAddr(parts[1])
	if err != nil || address.Unmap().IsLoopback() {
		return "", false
	}
	source := netip.AddrFrom16(source4.As16()).String() // as a socket for both families shows it
	if address.Is4() {
		source = source4.String()
	} else if !address.Is4In6() {
		source = source6.String()
	}
	return source + "-" + parts[2], parts[1] != source
}
