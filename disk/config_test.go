package disk

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const uuidA = "7f3c1c1e-55d0-4a8b-9a0e-0c4f5a1d2b31"

func TestParseConfig(t *testing.T) {
	large := `{"diskUUID":"` + uuidA + `"}` + strings.Repeat(" ", MaxConfigBytes)
	tests := map[string]struct {
		data    string
		want    Config
		wantErr error
	}{
		"a file of today is read": {
			data: `{"diskName":"d","diskUUID":"` + uuidA + `","diskDriver":"","state":"ready"}`,
			want: Config{Name: "d", UUID: uuidA, State: "ready"},
		},
		"every field is read": {
			data: `{"diskName":"d","diskUUID":"` + uuidA + `","diskDriver":"aio","state":"ready","claim":9}`,
			want: Config{Name: "d", UUID: uuidA, Driver: "aio", State: "ready", Claim: 9},
		},
		"a legacy file with only a UUID is read": {
			data: `{"diskUUID":"` + uuidA + `"}`, want: Config{UUID: uuidA},
		},
		"unknown keys are dropped": {
			data: `{"diskUUID":"` + uuidA + `","later":[1]}`, want: Config{UUID: uuidA},
		},
		"an upper-case UUID is lowered": {
			data: `{"diskUUID":"7F3C1C1E-55D0-4A8B-9A0E-0C4F5A1D2B31"}`, want: Config{UUID: uuidA},
		},
		"keys keep their case": {
			data: `{"diskUUID":"` + uuidA + `","DISKUUID":"x"}`, want: Config{UUID: uuidA},
		},
		"an empty file is torn":          {data: "", wantErr: ErrConfigTorn},
		"a cut file is torn":             {data: `{"diskUUID":"7f3c`, wantErr: ErrConfigTorn},
		"zero bytes are torn":            {data: "\x00\x00\x00\x00", wantErr: ErrConfigTorn},
		"two objects are torn":           {data: `{"diskUUID":"` + uuidA + `"}{}`, wantErr: ErrConfigTorn},
		"null is torn":                   {data: `null`, wantErr: ErrConfigTorn},
		"a list is torn":                 {data: `[]`, wantErr: ErrConfigTorn},
		"a name of wrong type is torn":   {data: `{"diskName":1,"diskUUID":"` + uuidA + `"}`, wantErr: ErrConfigTorn},
		"a fractional claim is torn":     {data: `{"claim":1.5,"diskUUID":"` + uuidA + `"}`, wantErr: ErrConfigTorn},
		"a claim below zero is torn":     {data: `{"claim":-1,"diskUUID":"` + uuidA + `"}`, wantErr: ErrConfigTorn},
		"a claim beyond a Lease is torn": {data: `{"claim":2147483648,"diskUUID":"` + uuidA + `"}`, wantErr: ErrConfigTorn},
		"no UUID key":                    {data: `{"diskName":"d"}`, wantErr: ErrConfigNoUUID},
		"an empty UUID is none":          {data: `{"diskUUID":""}`, wantErr: ErrConfigNoUUID},
		"a null UUID is none":            {data: `{"diskUUID":null}`, wantErr: ErrConfigNoUUID},
		"a short UUID is malformed":      {data: `{"diskUUID":"7f3c1c1e"}`, wantErr: ErrConfigBadUUID},
		"a UUID with g is malformed":     {data: `{"diskUUID":"gf3c1c1e-55d0-4a8b-9a0e-0c4f5a1d2b31"}`, wantErr: ErrConfigBadUUID},
		"misplaced dashes are malformed": {data: `{"diskUUID":"7f3c1c1e5-5d0-4a8b-9a0e-0c4f5a1d2b31"}`, wantErr: ErrConfigBadUUID},
		"a number as UUID is malformed":  {data: `{"diskUUID":7}`, wantErr: ErrConfigBadUUID},
		"the zero UUID is malformed":     {data: `{"diskUUID":"00000000-0000-0000-0000-000000000000"}`, wantErr: ErrConfigBadUUID},
		"64 KiB and more is too large":   {data: large, wantErr: ErrConfigTooLarge},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := ParseConfig([]byte(tt.data))
			require.ErrorIs(t, err, tt.wantErr)
			require.Equal(t, tt.wantErr == nil, err == nil)
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestEncodeConfigWritesTheKnownShape(t *testing.T) {
	tests := map[string]struct {
		config Config
		want   string
	}{
		"a new disk": {
			NewConfig("disk-1", uuidA),
			`{"diskName":"disk-1","diskUUID":"` + uuidA + `","diskDriver":"","state":"ready"}` + "\n",
		},
		"every field": {
			Config{Name: "<&>", UUID: uuidA, Driver: "aio", State: "ready", Claim: 3},
			`{"diskName":"<&>","diskUUID":"` + uuidA + `","diskDriver":"aio","state":"ready","claim":3}` + "\n",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := EncodeConfig(tt.config)
			require.NoError(t, err)
			require.Equal(t, tt.want, string(got))
			back, err := ParseConfig(got)
			require.NoError(t, err)
			assert.Equal(t, tt.config, back)
		})
	}
}

func TestEncodeConfigRefusesWhatCouldNotBeRead(t *testing.T) {
	tests := map[string]struct {
		config  Config
		wantErr error
	}{
		"no UUID":                {NewConfig("d", ""), ErrConfigNoUUID},
		"a malformed UUID":       {NewConfig("d", "abc"), ErrConfigBadUUID},
		"a claim beyond a Lease": {Config{UUID: uuidA, Claim: MaxClaim + 1}, ErrConfigTorn},
		"an endless name":        {NewConfig(strings.Repeat("x", MaxConfigBytes), uuidA), ErrConfigTooLarge},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := EncodeConfig(tt.config)
			assert.ErrorIs(t, err, tt.wantErr)
		})
	}
}

func TestNewUUID(t *testing.T) {
	block := func(first byte) []byte { return append([]byte{first}, bytes.Repeat([]byte{0xff}, 15)...) }
	two := append(block(0x01), block(0x02)...)
	const one, second = "01ffffff-ffff-4fff-bfff-ffffffffffff", "02ffffff-ffff-4fff-bfff-ffffffffffff"
	tests := map[string]struct {
		random  []byte
		known   []string
		want    string
		wantErr bool
	}{
		"the first draw is taken when its prefix is new": {random: two, want: one},
		"a draw with a known prefix is drawn again":      {random: two, known: []string{"01FF0000"}, want: second},
		"the 20th draw is taken whatever its prefix": {
			random: bytes.Repeat(block(0x01), 20), known: []string{"01ff"}, want: one,
		},
		"an exhausted source is an error": {random: two[:10], wantErr: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := NewUUID(bytes.NewReader(tt.random), tt.known)
			require.Equal(t, tt.want, got, err)
			require.Equal(t, tt.wantErr, err != nil)
			if err == nil {
				_, err := canonicalUUID(got)
				assert.NoError(t, err, "not a disk UUID")
			}
		})
	}
}

func FuzzParseConfig(f *testing.F) {
	for _, seed := range []string{
		"", "null", "{}", `{"diskUUID":"` + uuidA + `"}`, `{"diskUUID":`, "\x00\x00",
		`{"diskName":"d","diskUUID":"` + uuidA + `","diskDriver":"","state":"ready","claim":-1,"x":{}}`,
	} {
		f.Add([]byte(seed))
	}
	defects := []error{ErrConfigTorn, ErrConfigNoUUID, ErrConfigBadUUID, ErrConfigTooLarge}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := ParseConfig(data)
		if err != nil {
			for _, defect := range defects {
				if errors.Is(err, defect) {
					return
				}
			}
			t.Fatalf("an error without a defect: %v", err)
		}
		again, err := EncodeConfig(c)
		if errors.Is(err, ErrConfigTooLarge) { // bytes that are not UTF-8 grow
			return
		}
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		if back, err := ParseConfig(again); err != nil || back != c {
			t.Fatalf("read back as %+v, %v; want %+v", back, err, c)
		}
	})
}
