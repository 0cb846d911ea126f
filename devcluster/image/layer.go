package image

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strings"
)

// Layer collects the content of one layer. Paths inside the image are absolute; parents are created as needed (0755,
// root). If a path is added twice, the first entry stays. Write the layer out once with WriteTo.
type Layer struct {
	entries map[string]layerEntry
}

type layerEntry struct {
	header tar.Header
	data   []byte
	source string
}

// NewLayer returns a layer without entries.
func NewLayer() *Layer {
	return &Layer{entries: map[string]layerEntry{}}
}

// Has reports whether the path is already in the layer.
func (l *Layer) Has(name string) bool {
	_, ok := l.entries[clean(name)]
	return ok
}

// Dir adds a directory.
func (l *Layer) Dir(name string, mode int64) {
	l.put(name, layerEntry{header: tar.Header{Typeflag: tar.TypeDir, Mode: mode}})
}

// Symlink adds a symbolic link.
func (l *Layer) Symlink(name, target string) {
	l.put(name, layerEntry{header: tar.Header{Typeflag: tar.TypeSymlink, Linkname: target, Mode: 0o777}})
}

// Bytes adds a file with the given content.
func (l *Layer) Bytes(name string, data []byte, mode int64) {
	l.put(name, layerEntry{header: tar.Header{Typeflag: tar.TypeReg, Mode: mode, Size: int64(len(data))}, data: data})
}

// File adds the local file source (symbolic links are followed) under name with its own permission bits. A directory is
// added with all its content.
func (l *Layer) File(name, source string) error {
	info, err := os.Stat(source)
	if err != nil {
		return fmt.Errorf("add %s to image: %w", source, err)
	}
	if info.IsDir() {
		return l.tree(name, source)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("add %s to image: neither file nor directory", source)
	}
	l.put(name, layerEntry{
		header: tar.Header{Typeflag: tar.TypeReg, Mode: int64(info.Mode().Perm()), Size: info.Size()},
		source: source,
	})
	return nil
}

func (l *Layer) tree(name, source string) error {
	return filepath.WalkDir(source, func(p string, d os.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("add %s to image: %w", p, err)
		}
		rel, err := filepath.Rel(source, p)
		if err != nil {
			return fmt.Errorf("add %s to image: %w", p, err)
		}
		inside := path.Join(name, rel)
		switch {
		case d.IsDir():
			l.Dir(inside, 0o755)
			return nil
		case d.Type()&os.ModeSymlink != 0:
			target, err := os.Readlink(p)
			if err != nil {
				return fmt.Errorf("add %s to image: %w", p, err)
			}
			l.Symlink(inside, target)
			return nil
		}
		return l.File(inside, p)
	})
}

func (l *Layer) put(name string, e layerEntry) {
	name = clean(name)
	if name == "" || l.Has(name) {
		return
	}
	if parent := path.Dir(name); parent != "." && !l.Has(parent) {
		l.Dir(parent, 0o755)
	}
	e.header.Name = name
	if e.header.Typeflag == tar.TypeDir {
		e.header.Name += "/"
	}
	l.entries[name] = e
}

func clean(name string) string {
	return strings.TrimPrefix(path.Clean("/"+name), "/")
}

// WriteTo writes the layer's tar, sorted by path so that parents come first and equal layers have equal digests.
func (l *Layer) WriteTo(w io.Writer) (int64, error) {
	counter := &countingWriter{w: w}
	t := tar.NewWriter(counter)
	names := make([]string, 0, len(l.entries))
	for name := range l.entries {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		if err := l.entries[name].write(t); err != nil {
			return counter.n, fmt.Errorf("write %s to layer: %w", name, err)
		}
	}
	return counter.n, t.Close()
}

func (e layerEntry) write(t *tar.Writer) error {
	if err := t.WriteHeader(&e.header); err != nil {
		return err
	}
	if e.source == "" {
		_, err := t.Write(e.data)
		return err
	}
	f, err := os.Open(e.source)
	if err != nil {
		return err
	}
	defer f.Close()
	n, err := io.Copy(t, f)
	if err == nil && n != e.header.Size {
		err = errors.New("file changed while it was read")
	}
	return err
}

type countingWriter struct {
	w io.Writer
	n int64
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// Build writes an image that consists of an optional base and one layer on top. The base is a root file system tar; "":
// no base.
func Build(out string, c Config, baseTar string, top *Layer) error {
	f, err := os.CreateTemp(filepath.Dir(out), ".layer-*")
	if err != nil {
		return fmt.Errorf("build image %s: %w", c.Name, err)
	}
	defer func() { _ = os.Remove(f.Name()) }()
	defer f.Close()
	if _, err := top.WriteTo(f); err != nil {
		return fmt.Errorf("build image %s: %w", c.Name, err)
	}
	layers := []string{f.Name()}
	if baseTar != "" {
		layers = []string{baseTar, f.Name()}
	}
	return WriteArchive(out, c, layers)
}
