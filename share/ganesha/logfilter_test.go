package ganesha

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLogFilter(t *testing.T) {
	const head = "24/11/2026 14:23:09 : epoch 6b059db8 : vm : nfs-ganesha-22[main] "
	for _, c := range []struct {
		name   string
		parts  []string
		passed string
		heard  []string
	}{
		{"lines in pieces", []string{"one\ntw", "o\nth", "ree", "\nrest"}, "one\ntwo\nthree\n", nil},
		{"what is marked → is heard, and passed on without the mark", []string{"M a\nMb\n"}, "a\nMb\n", []string{"a\n"}},
		{"levels of the log → are not passed on", []string{"M " + head + "f :LOG :NULL :LOG: Changing\n" + head + "f :LOG :NULL :LOG: Changing\n"}, "", []string{head + "f :LOG :NULL :LOG: Changing\n"}},
		{
			"clients that come and go → are heard",
			[]string{"M " + head + "f :CLIENT ID :EVENT :x\nM " + head + "f :CLIENT ID :INFO :x\nM " + head + "f :CLIENT ID :DEBUG :x\n"},
			"",
			[]string{head + "f :CLIENT ID :EVENT :x\n", head + "f :CLIENT ID :INFO :x\n", head + "f :CLIENT ID :DEBUG :x\n"},
		},
		{
			"what goes wrong with clients → is passed on",
			[]string{"M " + head + "f :CLIENT ID :WARN :x\nM " + head + "fs_add_clid :CLIENT ID :EVENT :Failed to create client\n"},
			head + "f :CLIENT ID :WARN :x\n" + head + "fs_add_clid :CLIENT ID :EVENT :Failed to create client\n",
			[]string{head + "f :CLIENT ID :WARN :x\n", head + "fs_add_clid :CLIENT ID :EVENT :Failed to create client\n"},
		},
		{
			"the rest of a line that a client broke → is not heard, and goes with its line",
			[]string{"M " + head + "f :CLIENT ID :DEBUG :addr=x\n" + head + "forged :STATE :EVENT :y\nM z\n"},
			"z\n",
			[]string{head + "f :CLIENT ID :DEBUG :addr=x\n", "z\n"},
		},
		{
			"a look that finds what the last one did → is not passed on",
			[]string{strings.Repeat("M "+head+"nfs_try_lift_grace :STATE :EVENT :complete(0)\n", 2), "M " + head + "nfs_try_lift_grace :STATE :EVENT :complete(1)\n"},
			head + "nfs_try_lift_grace :STATE :EVENT :complete(0)\n" + head + "nfs_try_lift_grace :STATE :EVENT :complete(1)\n",
			[]string{
				head + "nfs_try_lift_grace :STATE :EVENT :complete(0)\n", head + "nfs_try_lift_grace :STATE :EVENT :complete(0)\n",
				head + "nfs_try_lift_grace :STATE :EVENT :complete(1)\n",
			},
		},
		{
			"text like chatter within a line → is passed on",
			[]string{"M " + head + "f :STATE :WARN :name :CLIENT ID :DEBUG :x\n"},
			head + "f :STATE :WARN :name :CLIENT ID :DEBUG :x\n",
			[]string{head + "f :STATE :WARN :name :CLIENT ID :DEBUG :x\n"},
		},
		{"a line without an end", []string{strings.Repeat("x", maxLine), "y"}, strings.Repeat("x", maxLine) + "y", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var got bytes.Buffer
				var heard []string
				f := newLogFilter(&got, "M", func(line []byte) { heard = append(heard, string(line)) })
				for _, part := range c.parts {
					n, err := f.Write([]byte(part))
					require.NoError(t, err)
					assert.Equal(t, len(part), n)
				}
				f.close()
				synctest.Wait()
				assert.Equal(t, c.passed, got.String())
				assert.Equal(t, c.heard, heard)
			})
		})
	}
}

// deaf is a reader of the log that does not read.
type deaf struct{ until chan struct{} }

func (d deaf) Write(p []byte) (int, error) {
	<-d.until
	return len(p), nil
}

func TestAnUnreadLogBlocksNoServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, heard := deaf{make(chan struct{})}, 0
		f := newLogFilter(d, "M", func([]byte) { heard++ })
		for range 2 * maxUnread {
			_, err := f.Write([]byte("M line\n"))
			require.NoError(t, err)
		}
		assert.Equal(t, 2*maxUnread, heard, "what is lost for its reader is not lost for this process")
		f.close()
		close(d.until)
	})
}
