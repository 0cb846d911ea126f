package api

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
	"github.com/longhorn-lep/longhorn-manager/internal/testutil/build"
	"github.com/longhorn-lep/longhorn-manager/settings"
)

func TestBaseURL(t *testing.T) {
	cases := map[string]struct {
		headers []string
		want    string
	}{
		"plain → the Host header":                    {[]string{"Host: node:9500"}, "http://node:9500/v1"},
		"default port → dropped":                     {[]string{"Host: node:80"}, "http://node/v1"},
		"IPv6 → kept in brackets":                    {[]string{"Host: [fd00::1]:9500"}, "http://[fd00::1]:9500/v1"},
		"behind a proxy → what the proxy was asked":  {[]string{"X-Forwarded-Proto: https", "X-Forwarded-Host: lh.example", "X-Forwarded-Port: 443"}, "https://lh.example/v1"},
		"behind a proxy on another port → with it":   {[]string{"X-Forwarded-Proto: https", "X-Forwarded-Host: lh.example", "X-Forwarded-Port: 8443"}, "https://lh.example:8443/v1"},
		"two proxies → the outer one":                {[]string{"X-Forwarded-Proto: https, http", "X-Forwarded-Host: lh.example:8443, inner:80"}, "https://lh.example:8443/v1"},
		"a request URL → before all others":          {[]string{"X-API-request-url: https://ui.example:443/v1/volumes", "X-Forwarded-Host: lh.example"}, "https://ui.example/v1"},
		"a request URL that is none → ignored":       {[]string{"Host: node:9500", "X-API-request-url: javascript:alert(1)"}, "http://node:9500/v1"},
		"a forwarded host that is none → ignored":    {[]string{"Host: node:9500", `X-Forwarded-Host: "><script>`}, "http://node:9500/v1"},
		"a forwarded scheme that is none → ignored":  {[]string{"Host: node:9500", "X-Forwarded-Proto: ftp"}, "http://node:9500/v1"},
		"a forwarded port that is no port → ignored": {[]string{"X-Forwarded-Host: lh.example", "X-Forwarded-Port: 1/x"}, "http://lh.example/v1"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequestWithContext(t.Context(), "GET", "/v1", nil)
			for _, header := range c.headers {
				if name, value, _ := strings.Cut(header, ": "); name == "Host" {
					r.Host = value
				} else {
					r.Header.Set(name, value)
				}
			}
			assert.Equal(t, c.want, baseURL(r))
		})
	}
}

func TestEveryResponsePointsToTheSchemas(t *testing.T) {
	b := newBench(t, detached("vol"))
	for _, request := range []string{"GET /", "GET /v1", "GET /v1/volumes", "GET /v1/volumes/nix", "DELETE /v1/volumes/vol", "POST /v1/volumes", "GET /nix"} {
		method, path, _ := strings.Cut(request, " ")
		w := do(t, b.server, method, path, "", "X-Forwarded-Host: lh.example")
		assert.Equal(t, "http://lh.example/v1/schemas", w.Header().Get("X-API-Schemas"), request)
	}
}

func TestTheManagerURLIsWhatLinksBeginWith(t *testing.T) {
	b := newBench(t, detached("vol"), build.Setting(settings.ManagerURL, "https://lh.example:8443"))
	w := do(t, b.server, "GET", "/v1/volumes", "", "X-Forwarded-Host: other.example", "X-API-request-url: http://third.example/v1")
	assert.Equal(t, "https://lh.example:8443/v1/schemas", w.Header().Get("X-API-Schemas"))
	assert.Contains(t, w.Body.String(), `"self":"https://lh.example:8443/v1/volumes/vol"`)
}

func TestABrowserGetsAPageWithoutScripts(t *testing.T) {
	b := newBench(t)
	const browser = "Accept: text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"
	w := do(t, b.server, "GET", "/v1/volumes/%3Cscript%3E", "", browser)
	assert.Equal(t, 404, w.Code, w.Header())
	assert.True(t, strings.HasPrefix(w.Header().Get("Content-Type"), "text/html"))
	assert.Equal(t, "default-src 'none'", w.Header().Get("Content-Security-Policy"))
	text := w.Body.String()
	assert.NotContains(t, text, "<script")
	assert.Contains(t, text, "does not exist")
	for _, accept := range []string{"*/*", "application/json", "text/html, application/json"} {
		w := do(t, b.server, "GET", "/v1", "", "Accept: "+accept)
		assert.Equal(t, "application/json; charset=utf-8", w.Header().Get("Content-Type"), accept)
	}
}

func TestVersions(t *testing.T) {
	b := newBench(t)
	version := decoded[v1.APIVersion](t, do(t, b.server, "GET", "/v1", ""))
	for name, path := range map[string]string{
		"self": "", "schemas": "/schemas", "volumes": "/volumes", "nodes": "/nodes", "settings": "/settings",
		"instanceManagers": "/instancemanagers", "shareManagers": "/sharemanagers", "snapshotCRs": "/snapshotcrs", "volumeAttachments": "/volumeattachments",
	} {
		assert.Equal(t, "http://example.com/v1"+path, version.Links[name], "link %s", name)
	}
	for _, path := range []string{"/", "/v1/apiversions"} {
		c := decoded[v1.Collection[v1.APIVersion]](t, do(t, b.server, "GET", path, ""))
		assert.Equal(t, "collection", c.Type, path)
		assert.Equal(t, "apiVersion", c.ResourceType, path)
		require.Len(t, c.Data, 1, path)
		assert.Equal(t, "v1", c.Data[0].ID, path)
	}
}

func TestACollectionListsItsCreateTypes(t *testing.T) {
	b := newBench(t, detached("b"), detached("a"))
	c := decoded[v1.Collection[v1.Volume]](t, do(t, b.server, "GET", "/v1/volumes", ""))
	assert.Equal(t, "volume", c.ResourceType)
	assert.Equal(t, "http://example.com/v1/volumes", c.Links["self"])
	assert.Equal(t, "http://example.com/v1/volumes", c.CreateTypes["volume"])
	require.Len(t, c.Data, 2)
	assert.Equal(t, "a", c.Data[0].ID)
	w := do(t, b.server, "GET", "/v1/volumeattachments", "")
	assert.NotContains(t, w.Body.String(), "createTypes")
	assert.Contains(t, w.Body.String(), `"data":[]`)
}
