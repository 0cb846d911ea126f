package mount

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestMountOptionsOfAShareTakeEffect(t *testing.T) {
	const noatime = uintptr(unix.MS_NOATIME)
	for name, c := range map[string]struct {
		base    string // nfsOptions; "": the default
		options []string
		lists   []string // that are tried
		flags   uintptr
		refused []string
	}{
		"none → the default": {"", nil, []string{"vers=4.2,noresvport,softerr,timeo=300,retrans=5", "vers=4.2,noresvport,soft,timeo=300,retrans=5", "vers=4.1,noresvport,softerr,timeo=300,retrans=5", "vers=4.1,noresvport,soft,timeo=300,retrans=5"}, 0, nil},
		"version, hard, timeo and noatime → all act": {
			"",
			[]string{"nfsvers=4.1", "hard", "timeo=600", "noatime"},
			[]string{"vers=4.1,noresvport,hard,timeo=600,retrans=5"},
			noatime, nil,
		},
		"hard alone → older versions are still tried": {"", []string{"hard"}, []string{"vers=4.2,noresvport,hard,timeo=300,retrans=5", "vers=4.1,noresvport,hard,timeo=300,retrans=5"}, 0, nil},
		"vers=4 → the latest that both know": {
			"", []string{"vers=4,hard"}, []string{"vers=4.2,noresvport,hard,timeo=300,retrans=5", "vers=4.1,noresvport,hard,timeo=300,retrans=5", "vers=4.0,noresvport,hard,timeo=300,retrans=5"}, 0, nil,
		},
		"options that are not among the defaults → added":      {"", []string{"vers=4.2", "hard", "nconnect=4", " rsize=65536"}, []string{"vers=4.2,noresvport,hard,timeo=300,retrans=5,nconnect=4,rsize=65536"}, 0, nil},
		"beside nfsOptions → in place of the same of these":    {"vers=4.1,soft,timeo=100", []string{"hard", "noatime"}, []string{"vers=4.1,hard,timeo=100"}, noatime, nil},
		"the same twice → the last":                            {"", []string{"vers=4.2", "hard", "soft"}, []string{"vers=4.2,noresvport,soft,timeo=300,retrans=5"}, 0, nil},
		"for programs that mount → no effect, as anywhere":     {"vers=4.1", []string{"defaults", "_netdev"}, []string{"vers=4.1"}, 0, nil},
		"for a file system on a device → refused":              {"vers=4.1", []string{"discard", "data=ordered", "noatime"}, []string{"vers=4.1"}, noatime, []string{"discard", "data=ordered"}},
		"another version of NFS → refused":                     {"vers=4.1", []string{"nfsvers=3"}, []string{"vers=4.1"}, 0, []string{"nfsvers=3"}},
		"the ends of the connection → refused":                 {"vers=4.1", []string{"addr=192.0.2.1", "port=x"}, []string{"vers=4.1"}, 0, []string{"addr=192.0.2.1", "port=x"}},
		"one that smuggles another in → refused":               {"vers=4.1", []string{"timeo=1\x00addr"}, []string{"vers=4.1"}, 0, []string{"timeo=1\x00addr"}},
		"a misspelt one → refused, and the good one beside it": {"vers=4.1", []string{"hrad,timeo=7"}, []string{"vers=4.1,timeo=7"}, 0, []string{"hrad"}},
	} {
		t.Run(name, func(t *testing.T) {
			base := DefaultNFSOptions
			if c.base != "" {
				var err error
				base, err = ParseNFSOptions(c.base)
				require.NoError(t, err)
			}
			got, refused := base.WithMountOptions(c.options)
			var lists []string
			for _, l := range got.variants() {
				lists = append(lists, strings.Join(l, ","))
			}
			assert.Equal(t, c.lists, lists)
			assert.Equal(t, c.flags, got.flags)
			assert.Equal(t, c.refused, refused)
		})
	}
	assert.Equal(t, []string{"vers=4.2", "noresvport", "softerr", "timeo=300", "retrans=5"}, DefaultNFSOptions.data, "the default is not changed")
}
