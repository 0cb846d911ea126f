package api

import (
	"net/http/httptest"
	"strings"
	"testing"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
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
			if got := baseURL(r); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestEveryResponsePointsToTheSchemas(t *testing.T) {
	b := newBench(t, detached("vol"))
	for _, request := range []string{"GET /", "GET /v1", "GET /v1/volumes", "GET /v1/volumes/nix", "DELETE /v1/volumes/vol", "POST /v1/volumes", "GET /nix"} {
		method, path, _ := strings.Cut(request, " ")
		w := do(t, b.server, method, path, "", "X-Forwarded-Host: lh.example")
		if got := w.Header().Get("X-API-Schemas"); got != "http://lh.example/v1/schemas" {
			t.Errorf("%s: %q", request, got)
		}
	}
}

func TestABrowserGetsAPageWithNothingLiveInIt(t *testing.T) {
	b := newBench(t)
	const browser = "Accept: text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"
	w := do(t, b.server, "GET", "/v1/volumes/%3Cscript%3E", "", browser)
	if w.Code != 404 || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/html") || w.Header().Get("Content-Security-Policy") != "default-src 'none'" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
	if text := w.Body.String(); strings.Contains(text, "<script") || !strings.Contains(text, "does not exist") {
		t.Errorf("page %s", text)
	}
	for _, accept := range []string{"*/*", "application/json", "text/html, application/json"} {
		if w := do(t, b.server, "GET", "/v1", "", "Accept: "+accept); w.Header().Get("Content-Type") != "application/json; charset=utf-8" {
			t.Errorf("%s: %s", accept, w.Header().Get("Content-Type"))
		}
	}
}

func TestVersions(t *testing.T) {
	b := newBench(t)
	version := decoded[v1.APIVersion](t, do(t, b.server, "GET", "/v1", ""))
	for name, path := range map[string]string{
		"self": "", "schemas": "/schemas", "volumes": "/volumes", "nodes": "/nodes", "settings": "/settings",
		"instanceManagers": "/instancemanagers", "volumeAttachments": "/volumeattachments",
	} {
		if got := version.Links[name]; got != "http://example.com/v1"+path {
			t.Errorf("link %s is %q", name, got)
		}
	}
	for _, path := range []string{"/", "/v1/apiversions"} {
		c := decoded[v1.Collection[v1.APIVersion]](t, do(t, b.server, "GET", path, ""))
		if c.Type != "collection" || c.ResourceType != "apiVersion" || len(c.Data) != 1 || c.Data[0].ID != "v1" {
			t.Errorf("%s: %+v", path, c)
		}
	}
}

func TestACollectionTellsWhatCanBeMadeInIt(t *testing.T) {
	b := newBench(t, detached("b"), detached("a"))
	c := decoded[v1.Collection[v1.Volume]](t, do(t, b.server, "GET", "/v1/volumes", ""))
	if c.ResourceType != "volume" || c.Links["self"] != "http://example.com/v1/volumes" || c.CreateTypes["volume"] != "http://example.com/v1/volumes" || len(c.Data) != 2 || c.Data[0].ID != "a" {
		t.Errorf("volumes %+v", c)
	}
	w := do(t, b.server, "GET", "/v1/volumeattachments", "")
	if strings.Contains(w.Body.String(), "createTypes") || !strings.Contains(w.Body.String(), `"data":[]`) {
		t.Errorf("attachments %s", w.Body)
	}
}
