package disk

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

const (
	me    = "node-1/disk-1"
	other = "node-2/disk-9"
)

func TestDecideClaim(t *testing.T) {
	const (
		alive = "duplicate UUID: disk UUID " + uuidA + " is claimed by disk " + other + ", which still exists"
		old   = "this is an old copy of disk UUID " + uuidA
	)
	held := func(holder string, number int64) Lease { return Lease{Exists: true, Holder: holder, Number: number} }
	pending := func(holder string, number, from int64) Lease {
		return Lease{Exists: true, Holder: holder, Number: number, Pending: true, From: from}
	}
	tests := map[string]struct {
		lease Lease
		file  int64
		gone  bool
		want  ClaimAction
		num   int64
		text  string
	}{
		"no Lease, no number → the first claim":           {Lease{}, 0, false, ClaimTake, 1, ""},
		"no Lease, a number → above it, for it was lost":  {Lease{}, 4, false, ClaimTake, 5, ""},
		"mine, the same number → hold":                    {held(me, 4), 4, false, ClaimHold, 4, ""},
		"mine, file below → an old copy":                  {held(me, 4), 3, false, ClaimRefuse, 0, old + ": longhorn-disk.cfg has claim 3, but the last claim is 4, of disk " + me},
		"mine, file above → the Lease is old":             {held(me, 4), 7, false, ClaimTake, 8, ""},
		"mine, file put back without a number → again":    {held(me, 4), 0, false, ClaimTake, 5, ""},
		"mine, Lease never counted, no number → first":    {held(me, 0), 0, false, ClaimTake, 1, ""},
		"mine, cut short before the file → go on":         {pending(me, 5, 4), 4, false, ClaimTake, 5, ""},
		"mine, cut short after the file → go on":          {pending(me, 5, 4), 5, false, ClaimTake, 5, ""},
		"mine, cut short, the first claim → go on":        {pending(me, 1, 0), 0, false, ClaimTake, 1, ""},
		"mine, cut short, file put back → go on":          {pending(me, 5, 4), 0, false, ClaimTake, 5, ""},
		"mine, cut short, another number → an old copy":   {pending(me, 5, 4), 3, false, ClaimRefuse, 0, old},
		"mine, cut short, file above → the Lease is old":  {pending(me, 5, 4), 6, false, ClaimTake, 7, ""},
		"another's, the same number → duplicate":          {held(other, 4), 4, false, ClaimRefuse, 0, alive},
		"another's, file below → duplicate":               {held(other, 4), 3, false, ClaimRefuse, 0, alive},
		"another's, file above → duplicate":               {held(other, 4), 9, false, ClaimRefuse, 0, alive},
		"another's, no number → duplicate":                {held(other, 4), 0, false, ClaimRefuse, 0, alive},
		"another's, cut short → duplicate":                {pending(other, 5, 4), 4, false, ClaimRefuse, 0, alive},
		"the holder is gone, same number → it moves":      {held(other, 4), 4, true, ClaimTake, 5, ""},
		"the holder is gone, no number → it moves":        {held(other, 4), 0, true, ClaimTake, 5, ""},
		"the holder is gone, file above → above the file": {held(other, 4), 6, true, ClaimTake, 7, ""},
		"the holder is gone, file below → an old copy":    {held(other, 4), 3, true, ClaimRefuse, 0, old + ": longhorn-disk.cfg has claim 3, but the last claim is 4, of disk " + other},
		"gone before it wrote the file → it moves":        {pending(other, 5, 4), 4, true, ClaimTake, 6, ""},
		"gone after it wrote the file → it moves":         {pending(other, 5, 4), 5, true, ClaimTake, 6, ""},
		"gone cut short, another number → an old copy":    {pending(other, 5, 4), 3, true, ClaimRefuse, 0, old},
		"nobody's, the same number → taken":               {held("", 4), 4, false, ClaimTake, 5, ""},
		"the numbers are used up → refused":               {held(other, MaxClaim), MaxClaim, true, ClaimRefuse, 0, "it cannot be claimed again"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := DecideClaim(ClaimInput{UUID: uuidA, Self: me, File: tt.file, Lease: tt.lease, HolderGone: tt.gone, Discard: "discard it"})
			assert.Equal(t, tt.want, got.Action)
			assert.Equal(t, tt.num, got.Number)
			assert.Contains(t, got.Cause, tt.text)
			refused := tt.want == ClaimRefuse
			assert.Equal(t, refused, got.Reason == ReasonDuplicateUUID, "reason %q, gist %q", got.Reason, got.Cause)
			assert.Equal(t, refused, got.Cause != "")
			if strings.HasPrefix(tt.text, old) {
				assert.True(t, strings.HasSuffix(got.Cause, ": discard it"), "the way out is not named: %q", got.Cause)
			}
		})
	}
}

func TestRefusedKeepsTheRecordedUUID(t *testing.T) {
	got := Refused("node-1", "d", "/d", uuidA, ReasonDuplicateUUID, "gist")
	want := Verdict{UUID: uuidA, Reason: "DuplicateUUID", Message: "Disk d(/d) on node node-1 is not ready: gist"}
	assert.Equal(t, want, got)
}

// claimant is a node with a copy of the disk. It may be in the middle of a claim.
type claimant struct {
	name string
	file int64
	gone bool // its disk was removed from the cluster
	held bool // it uses the disk

	busy    bool
	version int // of the Lease that it read
	in      ClaimInput
	number  int64
	next    int // the number of its next write, 1 to 3
}

type claimModel struct {
	lease   Lease
	version int
}

// read is the start of a pass.
func (m *claimModel) read(c *claimant, gone bool) ClaimAction {
	c.in = ClaimInput{UUID: uuidA, Self: c.name, File: c.file, Lease: m.lease, HolderGone: gone}
	d := DecideClaim(c.in)
	c.held = d.Action == ClaimHold
	c.busy = d.Action == ClaimTake
	c.number, c.version, c.next = d.Number, m.version, 1
	if l := m.lease; c.busy && l.Pending && l.Holder == c.name && l.Number == d.Number {
		c.next = 2
	}
	return d.Action
}

// write performs the claimant's next write. A claimant that has lost the Lease abandons its claim.
func (m *claimModel) write(c *claimant) {
	if c.next != 2 && c.version != m.version {
		c.busy = false
		return
	}
	switch c.next {
	case 1:
		m.lease = Lease{Exists: true, Holder: c.name, Number: c.number, Pending: true, From: c.in.File}
	case 2:
		c.file = c.number
	case 3:
		m.lease = Lease{Exists: true, Holder: c.name, Number: c.number}
		c.busy, c.held = false, true
	}
	if c.next != 2 {
		m.version++
		c.version = m.version
	}
	c.next++
}

// The passes of two nodes with copies of one disk interleave in any way, and stop anywhere. The two nodes never both
// use the disk while neither is gone. A holder's file carries the Lease's number. A node that is alone becomes the
// holder, unless its copy is an old one.
func TestInterruptedClaimsOfCopies(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &claimModel{}
		start := rapid.Int64Range(0, 2).Draw(t, "file")
		nodes := []*claimant{{name: "a/d", file: start}, {name: "b/d", file: start}}
		isGone := func() bool {
			for _, c := range nodes {
				if c.name == m.lease.Holder {
					return c.gone
				}
			}
			return false
		}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			c := nodes[rapid.IntRange(0, 1).Draw(t, "node")]
			switch action := rapid.IntRange(0, 4).Draw(t, "action"); {
			case c.gone:
			case action == 0 && c.busy: // the process dies
				c.busy = false
			case action == 1: // the user removes the disk; once, and permanently
				c.gone, c.held, c.busy = true, false, false
			case c.busy:
				m.write(c)
			case !c.held:
				m.read(c, isGone())
			}
			if nodes[0].held && nodes[1].held {
				t.Fatalf("both use the disk: %+v %+v, Lease %+v", *nodes[0], *nodes[1], m.lease)
			}
			for _, c := range nodes {
				if c.held {
					require.Equal(t, m.lease.Number, c.file, "%+v uses a disk of Lease %+v", *c, m.lease)
					require.Equal(t, m.lease.Holder, c.name, "%+v uses a disk of Lease %+v", *c, m.lease)
				}
			}
		}
		for _, c := range nodes {
			if c.gone {
				continue
			}
			for range 8 {
				if c.busy {
					m.write(c)
				} else if !c.held {
					m.read(c, isGone())
				}
			}
			alone := nodes[0].gone || nodes[1].gone || m.lease.Holder == c.name
			isOld := c.file < m.lease.Number && c.file != 0
			require.False(t, alone && !isOld && !c.held, "%+v never gets its disk; Lease %+v", *c, m.lease)
		}
	})
}

var errCut = errors.New("cut short")

// allSteps is the order of steps that makes the file durable.
var allSteps = []step{stepOpenTemp, stepWrite, stepSync, stepClose, stepName, stepSyncDir}

// cutAt makes a writer fail, or its process die, before the given step. It records the steps that were started.
func cutAt(at step, dies bool, begun *[]step) func(step) error {
	return func(s step) error {
		*begun = append(*begun, s)
		switch {
		case s != at:
			return nil
		case dies:
			panic(errCut)
		}
		return errCut
	}
}

// until runs a function that a cutAt may end.
func until(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = r.(error)
		}
	}()
	return f()
}

func TestInterruptedWritesOfTheUUIDFile(t *testing.T) {
	operations := map[string]struct {
		before string // the file's content; empty: none
		run    func(root string, rec Record, before func(step) error) error
		want   [2]Config // before and after the name is given
	}{
		"create": {
			run: func(root string, rec Record, before func(step) error) error {
				return create(root, rec, NewConfig("d", uuidA), before)
			},
			want: [2]Config{{}, NewConfig("d", uuidA)},
		},
		"write a claim": {
			before: `{"diskUUID":"` + uuidA + `","diskName":"old name","claim":4}`,
			run:    func(root string, rec Record, before func(step) error) error { return writeClaim(root, rec, 5, before) },
			want:   [2]Config{{UUID: uuidA, Name: "old name", Claim: 4}, {UUID: uuidA, Name: "old name", Claim: 5}},
		},
	}
	for name, o := range operations {
		for i, at := range allSteps {
			for _, dies := range []bool{false, true} {
				t.Run(name+", "+map[bool]string{false: "an error: ", true: "death: "}[dies]+string(at), func(t *testing.T) {
					root := t.TempDir()
					if o.before != "" {
						require.NoError(t, os.WriteFile(filepath.Join(root, ConfigFileName), []byte(o.before), 0o600))
					}
					var begun []step
					err := until(func() error { return o.run(root, scanOne(root, "/"), cutAt(at, dies, &begun)) })
					require.ErrorIs(t, err, errCut)
					require.Len(t, begun, i+1)
					require.Equal(t, at, begun[i])
					want := o.want[0]
					if at == stepSyncDir {
						want = o.want[1]
					}
					after := scanOne(root, "/")
					if want.UUID == "" {
						assert.ErrorIs(t, after.ConfigErr, ErrConfigMissing)
					} else if assert.NotNil(t, after.Config, after.ConfigErr) {
						assert.Equal(t, want, *after.Config)
					}
					strays, _ := filepath.Glob(filepath.Join(root, ".*.tmp"))
					if !dies {
						assert.Empty(t, strays, "left behind")
					}

					// The operation is repeated, or found to be complete.
					again := o.run(root, after, nil)
					if again != nil {
						require.ErrorIs(t, again, ErrConfigExists)
					}
					final := scanOne(root, "/")
					require.NotNil(t, final.Config, "in the end, %v", final.ConfigErr)
					assert.Equal(t, o.want[1], *final.Config)
				})
			}
		}
	}
}

func TestWriteClaimChangesNothingButTheScannedFile(t *testing.T) {
	const file = `{"diskUUID":"` + uuidA + `","claim":4}`
	tests := map[string]struct {
		meanwhile func(root string) error
		claim     int64
		wantErr   error
		want      string // of the UUID file afterwards
	}{
		"another UUID meanwhile → untouched": {
			func(root string) error {
				return os.WriteFile(filepath.Join(root, "d", ConfigFileName), []byte(`{"diskUUID":"`+uuidB+`","claim":4}`), 0o600)
			}, 5, ErrConfigChanged, `{"diskUUID":"` + uuidB + `","claim":4}`,
		},
		"another claim meanwhile → untouched": {
			func(root string) error {
				return os.WriteFile(filepath.Join(root, "d", ConfigFileName), []byte(`{"diskUUID":"`+uuidA+`","claim":9}`), 0o600)
			}, 5, ErrConfigChanged, `{"diskUUID":"` + uuidA + `","claim":9}`,
		},
		"torn meanwhile → untouched": {
			func(root string) error {
				return os.WriteFile(filepath.Join(root, "d", ConfigFileName), []byte(`{"disk`), 0o600)
			}, 5, ErrConfigChanged, `{"disk`,
		},
		"gone meanwhile → not made": {
			func(root string) error { return os.Remove(filepath.Join(root, "d", ConfigFileName)) }, 5, ErrConfigChanged, "",
		},
		"another directory with the same file → untouched": {
			func(root string) error {
				return errors.Join(os.Rename(filepath.Join(root, "d"), filepath.Join(root, "was")), os.Mkdir(filepath.Join(root, "d"), 0o700),
					os.WriteFile(filepath.Join(root, "d", ConfigFileName), []byte(file), 0o600))
			}, 5, ErrDirectoryChanged, file,
		},
		"no directory any more → an error": {
			func(root string) error { return os.Rename(filepath.Join(root, "d"), filepath.Join(root, "was")) }, 5, os.ErrNotExist, "",
		},
		"a number that no file can have → untouched": {
			func(string) error { return nil }, MaxClaim + 1, ErrConfigTorn, file,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			path := filepath.Join(root, "d", ConfigFileName)
			require.NoError(t, errors.Join(os.Mkdir(filepath.Join(root, "d"), 0o700), os.WriteFile(path, []byte(file), 0o600)))
			rec := scanOne(root, "/d")
			require.NoError(t, tt.meanwhile(root))
			assert.ErrorIs(t, WriteClaim(root, rec, tt.claim), tt.wantErr)
			data, _ := os.ReadFile(path)
			assert.Equal(t, tt.want, string(data))
		})
	}
}

func TestWriteClaimNeedsAScannedFile(t *testing.T) {
	root := t.TempDir()
	assert.ErrorIs(t, WriteClaim(root, scanOne(root, "/"), 1), ErrConfigChanged)
	assertEntries(t, root)
}
