package app

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
)

func TestAPICheckAcceptsAnyAnswer(t *testing.T) {
	var status atomic.Int32
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "/version", r.URL.Path)
		assert.Empty(t, r.Header.Get("Authorization"), "no credential is needed, so none is sent")
		w.WriteHeader(int(status.Load()))
	}))
	defer s.Close()
	look, err := newAPICheck(&rest.Config{Host: s.URL, BearerToken: "secret", TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
	require.NoError(t, err)
	for code, answers := range map[int32]bool{200: true, 401: true, 403: true, 429: true, 500: true, 502: false, 503: false, 504: false} {
		status.Store(code)
		assert.Equal(t, answers, look(t.Context()) == nil, "%d", code)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	wrong, err := newAPICheck(&rest.Config{Host: s.URL})
	require.NoError(t, err)
	assert.ErrorContains(t, wrong(ctx), "certificate", "what is wrong is said")
	s.Close()
	assert.Error(t, look(ctx))
}
