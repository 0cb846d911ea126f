package dm

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestStateIsReadBackAsItIsPrinted(t *testing.T) {
	for text, want := range map[string]State{
		"ok":          {Kind: OK},
		"slow 250":    {Kind: Slow, Delay: 250 * time.Millisecond},
		"fail":        {Kind: Fail},
		"fail-writes": {Kind: FailWrites},
		"hang":        {Kind: Hang},
		"drop-writes": {Kind: DropWrites},
	} {
		got, err := ParseState(strings.Fields(text))
		require.NoError(t, err, text)
		assert.Equal(t, want, got, text)
		assert.Equal(t, text, want.String(), want)
	}
	for _, text := range []string{"", "slow", "slow x", "slow 0", "slow -1", "fail 3", "broken", "slow 1 2"} {
		got, err := ParseState(strings.Fields(text))
		assert.Error(t, err, "%q is read as %+v", text, got)
	}
	assert.Equal(t, "ok", (State{}).String())
}

func TestTables(t *testing.T) {
	d := Disk{Name: "data", Device: "/dev/ubdb", Bytes: 1 << 20}
	for state, want := range map[State]string{
		{}:                               "0 2048 linear /dev/ubdb 0",
		{Kind: Slow, Delay: time.Second}: "0 2048 delay /dev/ubdb 0 1000",
		{Kind: Fail}:                     "0 2048 flakey /dev/ubdb 0 0 1",
		{Kind: FailWrites}:               "0 2048 flakey /dev/ubdb 0 0 1 1 error_writes",
		{Kind: DropWrites}:               "0 2048 flakey /dev/ubdb 0 0 1 1 drop_writes",
		{Kind: Hang}:                     "0 2048 linear /dev/ubdb 0",
	} {
		assert.Equal(t, want, d.table(state), state)
		script := d.SwitchCommand(state)[2]
		assert.NotEqual(t, state.Kind == Hang, strings.Contains(script, "resume"), "%s: the device is resumed", state)
	}
}
