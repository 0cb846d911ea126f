package ui

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func packed(t *testing.T, text string) *fstest.MapFile {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := io.WriteString(w, text)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return &fstest.MapFile{Data: b.Bytes()}
}

func built(t *testing.T) *Handler {
	t.Helper()
	h, err := newHandler(fstest.MapFS{
		"page/absent.html":                  {Data: []byte("absent")},
		"page/built/index.html.gz":          packed(t, "the page"),
		"page/built/assets/index-aa.js.gz":  packed(t, "script"),
		"page/built/assets/index-bb.css.gz": packed(t, "style"),
	})
	require.NoError(t, err)
	require.True(t, h.Built())
	return h
}

func ask(t *testing.T, h http.Handler, method, path string, headers map[string]string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, nil)
	for name, value := range headers {
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestWhatIsServed(t *testing.T) {
	h := built(t)
	const forever, never = "public, max-age=31536000, immutable", "no-cache"
	for _, tc := range []struct {
		name, path, body, kind, cache string
		status                        int
	}{
		{"the page", "/", "the page", "text/html; charset=utf-8", never, 200},
		{"a path that the page reads", "/volumes/vol-1", "the page", "text/html; charset=utf-8", never, 200},
		{"a script → cached for good", "/assets/index-aa.js", "script", "text/javascript; charset=utf-8", forever, 200},
		{"a style", "/assets/index-bb.css", "style", "text/css; charset=utf-8", forever, 200},
		{"a file of another release → not the page", "/assets/index-cc.js", "the file does not exist; reload the page\n", "text/plain; charset=utf-8", "", 404},
		{"no way out of the directory", "/assets/../index.html", "the file does not exist; reload the page\n", "text/plain; charset=utf-8", "", 404},
	} {
		w := ask(t, h, "GET", tc.path, nil)
		assert.Equal(t, tc.status, w.Code, tc.name)
		assert.Equal(t, tc.body, w.Body.String(), tc.name)
		assert.Equal(t, tc.kind, w.Header().Get("Content-Type"), tc.name)
		assert.Equal(t, tc.cache, w.Header().Get("Cache-Control"), tc.name)
		assert.Contains(t, w.Header().Get("Content-Security-Policy"), "script-src 'self';", tc.name)
		assert.NotContains(t, w.Header().Get("Content-Security-Policy"), "unsafe", tc.name)
		assert.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"), tc.name)
	}
}

func TestHowItIsSent(t *testing.T) {
	h := built(t)
	w := ask(t, h, "GET", "/assets/index-aa.js", map[string]string{"Accept-Encoding": "br, gzip"})
	assert.Equal(t, "gzip", w.Header().Get("Content-Encoding"))
	plain, err := gzip.NewReader(w.Body)
	require.NoError(t, err)
	text, err := io.ReadAll(plain)
	require.NoError(t, err)
	assert.Equal(t, "script", string(text))

	etag := w.Header().Get("ETag")
	require.NotEmpty(t, etag)
	again := ask(t, h, "GET", "/assets/index-aa.js", map[string]string{"If-None-Match": etag})
	assert.Equal(t, http.StatusNotModified, again.Code)
	assert.Empty(t, again.Body.String())
	assert.NotEqual(t, etag, ask(t, h, "GET", "/", nil).Header().Get("ETag"))

	assert.Empty(t, ask(t, h, "HEAD", "/", nil).Body.String())
	assert.Equal(t, http.StatusMethodNotAllowed, ask(t, h, "POST", "/", nil).Code)
}

// TestABuildWithoutThePageSaysHowToGetIt also checks that New accepts the embedded files, whether or not this checkout
// has a built page.
func TestABuildWithoutThePageSaysHowToGetIt(t *testing.T) {
	text, err := files.ReadFile(absent)
	require.NoError(t, err)
	h, err := newHandler(fstest.MapFS{"page/absent.html": {Data: text}})
	require.NoError(t, err)
	assert.False(t, h.Built())
	w := ask(t, h, "GET", "/", nil)
	assert.Equal(t, 200, w.Code)
	assert.Contains(t, w.Body.String(), "make ui")
	embedded, err := New()
	require.NoError(t, err)
	assert.Equal(t, 200, ask(t, embedded, "GET", "/", nil).Code)
}
