// Package page tests the web page in a headless Chromium. It uses the real REST API and the real login, on a cluster of
// fakes. Behaviour that needs real volumes is tested in test/e2e.
package page
