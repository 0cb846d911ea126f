// Package page tests the web page in a headless Chromium, over the real REST API with the real login, on a cluster of fakes. What only
// real volumes show is tested in test/e2e.
package page
