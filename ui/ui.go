// Package ui holds the web page: its sources (src/, built by scripts/ui.sh) and the handler that serves the built files. It must
// know nothing of this project: the page asks the REST API for all that it shows, with the rights of the user who looks at it. The
// files hold nothing that is not in the repository, so they are served to everyone.
//
// The program builds without a built page; then the handler answers with a page that says how to get it.
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

// files has absent.html, and below built/ what scripts/ui.sh made: each file compressed with gzip, under its name with ".gz".
//
//go:embed all:page
var files embed.FS

// Where files are. All but the page itself have a hash of their content in their names.
const (
	indexFile = "page/built/index.html.gz"
	absent    = "page/absent.html"
	assets    = "/assets/"
)

// policy lets the page load scripts, styles and pictures from this server alone, none from within the document, and lets no
// other page frame it.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// file is what is served under one path.
type file struct {
	packed []byte // with gzip
	etag   string
	kind   string // media type
	isPage bool   // its name stays when its content changes
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

// loadAbsent makes the page that says how to get the page.
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

// kindOf is the media type by a file's name. The system's own table is not asked for what a page must have: containers have none.
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

// Built tells whether the program was built with the page.
func (h *Handler) Built() bool { return h.built }

// ServeHTTP answers GET and HEAD: an asset by its path, 404 where there is none of that name, and the page itself at any other
// path, for the page reads the path itself.
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
		header.Set("Cache-Control", "no-cache") // ask each time; ETag makes that cheap
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
			_, _ = w.Write(f.packed) // the reader may be gone
		}
		return
	}
	plain, err := gzip.NewReader(bytes.NewReader(f.packed))
	if err != nil {
		http.Error(w, "the file is damaged in this build of the program", http.StatusInternalServerError)
		return
	}
	if r.Method == http.MethodGet {
		_, _ = io.Copy(w, plain) // the reader may be gone
	}
}
