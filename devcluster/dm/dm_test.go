package dm

import (
	"strings"
	"testing"
	"time"
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
		if err != nil || got != want {
			t.Errorf("%q is read as %+v, %v; want %+v", text, got, err, want)
		}
		if again := want.String(); again != text {
			t.Errorf("%+v is printed as %q, want %q", want, again, text)
		}
	}
	for _, text := range []string{"", "slow", "slow x", "slow 0", "slow -1", "fail 3", "broken", "slow 1 2"} {
		if got, err := ParseState(strings.Fields(text)); err == nil {
			t.Errorf("%q is read as %+v, want an error", text, got)
		}
	}
	if got := (State{}).String(); got != "ok" {
		t.Errorf("the zero state is printed as %q, want ok", got)
	}
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
		if got := d.table(state); got != want {
			t.Errorf("%s: table %q, want %q", state, got, want)
		}
		script := d.SwitchCommand(state)[2]
		if resumes := strings.Contains(script, "resume"); resumes == (state.Kind == Hang) {
			t.Errorf("%s: the device is resumed: %v", state, resumes)
		}
	}
}
