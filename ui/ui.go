// Package ui contains the web page: its sources (src/, built by scripts/ui.sh) and the handler that serves the built
// files. It must not know anything about this project: the page gets all its data from the REST API, with the rights of
// its user. The files contain only content of the repository, so the handler serves them to every client.
//
// The program can be built without a built page. In that case, the handler answers with a page that says how to build
// it.
package ui

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
)

// files contains absent.html, and below built/ the output of scripts/ui.sh: each file compressed with gzip, under its
// name with ".gz".
//
//go:embed all:page
var files embed.FS

// The paths of the files. The names of all files except the page itself contain a hash of their content.
const (
	indexFile = "page/built/index.html.gz"
	absent    = "page/absent.html"
	assets    = "/assets/"
)

// policy allows the page to load scripts, styles and pictures only from this server, and none from within the document.
// No other page may show it in a frame.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// file is a file of the page. It is served under one path.
type file struct {
	packed []byte // compressed with gzip
	etag   string
	kind   string // media type
	isPage bool   // its name does not change with its content
}

// Handler serves the page.
type Handler struct {
	page   *file
	assets map[string]*file // by path
	built  bool
}

// New returns the handler of the embedded page.
func New() (*Handler, error) { return newHandler(files) }

func newHandler(source fs.FS) (*Handler, error) {
	h := &Handler{assets: map[string]*file{}}
	page, err := fs.ReadFile(source, indexFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return h, h.loadAbsent(source)
	case err != nil:
		return nil, fmt.Errorf("read the page: %w", err)
	}
	h.built, h.page = true, newFile(page, "index.html")
	h.page.isPage = true
	list, err := fs.Glob(source, "page/built/assets/*.gz")
	if err != nil {
		return nil, fmt.Errorf("list the page's files: %w", err)
	}
	for _, name := range list {
		packed, err := fs.ReadFile(source, name)
		if err != nil {
			return nil, fmt.Errorf("read the page's file %s: %w", name, err)
		}
		plain := strings.TrimSuffix(path.Base(name), ".gz")
		h.assets[assets+plain] = newFile(packed, plain)
	}
	return h, nil
}

// loadAbsent creates the page that says how to build the web page.
func (h *Handler) loadAbsent(source fs.FS) error {
	text, err := fs.ReadFile(source, absent)
	if err != nil {
		return fmt.Errorf("read the page: %w", err)
	}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err = w.Write(text)
	if err = errors.Join(err, w.Close()); err != nil {
		return fmt.Errorf("compress the page: %w", err)
	}
	h.page = newFile(packed.Bytes(), "index.html")
	h.page.isPage = true
	return nil
}

func newFile(packed []byte, name string) *file {
	sum := sha256.Sum256(packed)
	return &file{packed: packed, etag: `"` + hex.EncodeToString(sum[:12]) + `"`, kind: kindOf(name)}
}

// kindOf returns the media type for the name of a file. It does not use the system's own table for the files that a
// page needs: containers have no such table.
func kindOf(name string) string {
	switch path.Ext(name) {
	case ".html":
		return "text/html; charset=utf-8"
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	}
	if kind := mime.TypeByExtension(path.Ext(name)); kind != "" {
		return kind
	}
	return "application/octet-stream"
}

// Built returns whether the program was built with the page.
func (h *Handler) Built() bool { return h.built }

// ServeHTTP answers GET and HEAD. An asset is served by its path; if no asset has that name, the answer is 404. For any
// other path, ServeHTTP answers with the page itself, which reads the path.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Content-Security-Policy", policy)
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		header.Set("Allow", "GET, HEAD")
		http.Error(w, "method not allowed; use GET or HEAD", http.StatusMethodNotAllowed)
		return
	}
	found := h.page
	if strings.HasPrefix(r.URL.Path, assets) {
		if found = h.assets[r.URL.Path]; found == nil {
			http.Error(w, "the file does not exist; reload the page", http.StatusNotFound)
			return
		}
	}
	found.serve(w, r)
}

func (f *file) serve(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Cache-Control", "public, max-age=31536000, immutable")
	if f.isPage {
		header.Set("Cache-Control", "no-cache") // browsers ask each time; the ETag makes that cheap
	}
	header.Set("ETag", f.etag)
	header.Set("Vary", "Accept-Encoding")
	if strings.Contains(r.Header.Get("If-None-Match"), f.etag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	header.Set("Content-Type", f.kind)
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		header.Set("Content-Encoding", "gzip")
		header.Set("Content-Length", fmt.Sprint(len(f.packed)))
		if r.Method == http.MethodGet {
			_, _ = w.Write(f.packed) // the client may have disconnected
		}
		return
	}
	plain, err := gzip.NewReader(bytes.NewReader(f.packed))
	if err != nil {
		http.Error(w, "the file is damaged in this build of the program", http.StatusInternalServerError)
		return
	}
	if r.Method == http.MethodGet {
		_, _ = io.Copy(w, plain) // the client may have disconnected
	}
}
