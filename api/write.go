package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"regexp"
	"strings"
)

// write sends a reply: JSON, or for a browser a page that contains the same JSON.
func write(w http.ResponseWriter, r *http.Request, result reply) error {
	header := w.Header()
	header.Set("X-API-Schemas", baseURL(r)+"/schemas")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store")
	if result.status == http.StatusServiceUnavailable {
		header.Set("Retry-After", "1")
	}
	if result.body == nil {
		w.WriteHeader(result.status)
		return nil
	}
	if wantsHTML(r) {
		return writeHTML(w, r, result)
	}
	data, err := json.Marshal(result.body)
	if err != nil {
		return fmt.Errorf("encode %T: %w", result.body, err)
	}
	header.Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(result.status)
	_, err = w.Write(append(data, '\n'))
	return err
}

func wantsHTML(r *http.Request) bool {
	accept := strings.Join(r.Header.Values("Accept"), ",")
	return isSafe(r.Method) && strings.Contains(accept, "text/html") && !strings.Contains(accept, "application/json")
}

// page shows JSON to people. The template escapes all content.
var page = template.Must(template.New("page").Parse(`<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{{.Title}}</title></head>
<body><h1>{{.Title}}</h1><p><a href="/v1">API</a> <a href="/v1/schemas">schemas</a></p><pre>{{.JSON}}</pre></body></html>
`))

func writeHTML(w http.ResponseWriter, r *http.Request, result reply) error {
	data, err := json.MarshalIndent(result.body, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %T: %w", result.body, err)
	}
	var text bytes.Buffer
	if err := page.Execute(&text, struct{ Title, JSON string }{r.URL.Path, string(data)}); err != nil {
		return fmt.Errorf("render a page: %w", err)
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'")
	w.WriteHeader(result.status)
	_, err = w.Write(text.Bytes())
	return err
}

// hostName matches what a Host header may contain: a name or address, and a port.
var hostName = regexp.MustCompile(`^[A-Za-z0-9._-]+(:[0-9]+)?$|^\[[0-9A-Fa-f:.]+\](:[0-9]+)?$`)

// headerRequestURL is the header in which a proxy passes the URL that the client requested; the setting manager-url
// replaces it.
const headerRequestURL = "X-API-request-url"

// baseURL returns the start of all links of a response, as the client sees this API: X-API-request-url, else
// X-Forwarded-{Proto,Host,Port}, else the Host header.
func baseURL(r *http.Request) string {
	if u, err := url.Parse(r.Header.Get(headerRequestURL)); err == nil &&
		(u.Scheme == "http" || u.Scheme == "https") && hostName.MatchString(u.Host) {
		return u.Scheme + "://" + withoutDefaultPort(u.Scheme, u.Host) + "/v1"
	}
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	if proto := firstOf(r, "X-Forwarded-Proto"); proto == "http" || proto == "https" {
		scheme = proto
	}
	host := r.Host
	if forwarded := firstOf(r, "X-Forwarded-Host"); hostName.MatchString(forwarded) {
		host = forwarded
		if port := firstOf(r, "X-Forwarded-Port"); port != "" && !hasPort(host) && hostName.MatchString("x:"+port) {
			host += ":" + port
		}
	}
	return scheme + "://" + withoutDefaultPort(scheme, host) + "/v1"
}

// firstOf returns the first element of a header to which proxies append.
func firstOf(r *http.Request, header string) string {
	first, _, _ := strings.Cut(r.Header.Get(header), ",")
	return strings.TrimSpace(first)
}

func hasPort(host string) bool {
	return strings.LastIndexByte(host, ':') > strings.LastIndexByte(host, ']')
}

func withoutDefaultPort(scheme, host string) string {
	if scheme == "http" {
		return strings.TrimSuffix(host, ":80")
	}
	return strings.TrimSuffix(host, ":443")
}

func resourceURL(base, path, id string) string { return base + "/" + path + "/" + url.PathEscape(id) }
