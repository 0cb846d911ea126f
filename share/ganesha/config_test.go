package ganesha

import (
	"flag"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/longhorn-lep/longhorn-manager/types"
)

var update = flag.Bool("update", false, "write the golden files anew")

func quiet() *logrus.Entry {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return logrus.NewEntry(log)
}

func TestConfiguration(t *testing.T) {
	for _, c := range []struct {
		golden string
		change func(*Config)
	}{
		{"plain.conf", func(*Config) {}},
		{"squashed.conf", func(c *Config) {
			c.Squash, c.Port, c.Cover = types.NFSSquashAll, 20490, CoverVisible
			c.Lease, c.Grace = 30*time.Second, time.Minute
		}},
		{"readers.conf", func(c *Config) { c.ReadOnly = true }},
		{"readonly.conf", func(c *Config) { c.ReadOnly, c.Squash, c.Cover = true, types.NFSSquashRoot, CoverNone }},
	} {
		t.Run(c.golden, func(t *testing.T) {
			config := Config{
				Volume: "pvc-1", Path: "/export/pvc-1", Port: 2049, Squash: types.NFSSquashNone, Lease: 15 * time.Second, Grace: 20 * time.Second,
				Recovery: "/run/longhorn-share/recovery", Cover: CoverHidden, Mark: "MARK",
			}
			c.change(&config)
			got := config.Text()
			file := filepath.Join("testdata", c.golden)
			if *update {
				require.NoError(t, os.WriteFile(file, []byte(got), 0o600))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			assert.Equal(t, string(want), got)
		})
	}
}
