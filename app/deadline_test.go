package app

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// silent is a transport that sends the headers immediately and no body until the request ends.
type silent struct{}

func (silent) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: silentBody{req.Context()}, Request: req}, nil
}

type silentBody struct{ ctx context.Context }

func (b silentBody) Read([]byte) (int, error) {
	<-b.ctx.Done()
	return 0, b.ctx.Err()
}

func (silentBody) Close() error { return nil }

func TestRequestsHaveADeadlineAndWatchesHaveNone(t *testing.T) {
	tests := map[string]struct {
		query string
		want  time.Duration // until its body ends; the caller cancels after an hour
	}{
		"a list → the deadline":                           {"", requestDeadline},
		"a list that says it is no watch → the deadline":  {"?watch=false&timeoutSeconds=600", requestDeadline},
		"a watch → as long as its caller wants":           {"?watch=true&timeoutSeconds=600", time.Hour},
		"a watch in the short form → as long as it wants": {"?watch=1", time.Hour},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://api/apis/x/v1/volumes"+tt.query, nil)
				require.NoError(t, err)
				start := time.Now()
				resp, err := withDeadlines(silent{}).RoundTrip(req)
				require.NoError(t, err)
				defer resp.Body.Close()
				_, err = resp.Body.Read(make([]byte, 1))
				assert.ErrorIs(t, err, context.DeadlineExceeded)
				assert.Equal(t, tt.want, time.Since(start))
			})
		})
	}
}

// The clients use deadlines, and have no other limit: an http.Client.Timeout cuts off watches.
func TestClientsPutDeadlinesOnRequestsOnly(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := "apiVersion: v1\nkind: Config\ncurrent-context: x\nclusters: [{name: x, cluster: {server: \"" + server.URL +
		"\"}}]\ncontexts: [{name: x, context: {cluster: x}}]\n"
	require.NoError(t, os.WriteFile(kubeconfig, []byte(text), 0o600))
	c, err := newClients(t.Context(), kubeconfig, logrus.NewEntry(logrus.New()))
	require.NoError(t, err)
	assert.Zero(t, c.config.Timeout)
	require.NotNil(t, c.config.WrapTransport)
	wrapped, is := c.config.WrapTransport(http.DefaultTransport).(deadlines)
	require.True(t, is)
	assert.Equal(t, 30*time.Second, wrapped.after)
}
