package kernel

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/mdlayher/genetlink"
	"github.com/mdlayher/genetlink/genltest"
	"github.com/mdlayher/netlink"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// command is one message that the fake kernel received.
type command struct {
	number uint8
	flags  netlink.HeaderFlags
	attrs  map[uint16]any
}

// fake returns a Link to a kernel that answers with err, or with the number of a device.
func fake(t *testing.T, err error) (*Link, *[]command) {
	t.Helper()
	var sent []command
	family := genetlink.Family{ID: 30, Version: 1, Name: familyName}
	answer := func(m genetlink.Message, raw netlink.Message) ([]genetlink.Message, error) {
		sent = append(sent, command{number: m.Header.Command, flags: raw.Header.Flags, attrs: decode(t, m.Data)})
		if err != nil {
			var no syscall.Errno
			require.ErrorAs(t, err, &no)
			return nil, genltest.Error(int(no))
		}
		ae := netlink.NewAttributeEncoder()
		ae.Uint32(attrIndex, 7)
		data, err := ae.Encode()
		return []genetlink.Message{{Data: data}}, err
	}
	l := &Link{sysfs: t.TempDir(), readFile: os.ReadFile, dial: func() (*genetlink.Conn, error) {
		return genltest.Dial(genltest.ServeFamily(family, answer)), nil
	}}
	return l, &sent
}

// decode reads attributes according to the kernel's policy.
func decode(t *testing.T, data []byte) map[uint16]any {
	t.Helper()
	ad, err := netlink.NewAttributeDecoder(data)
	require.NoError(t, err)
	got := map[uint16]any{}
	for ad.Next() {
		switch ad.Type() {
		case attrIndex:
			got[ad.Type()] = ad.Uint32()
		case attrBackend:
			got[ad.Type()] = ad.String()
		case attrSockets:
			ad.Nested(func(list *netlink.AttributeDecoder) error {
				for list.Next() {
					assert.EqualValues(t, attrSocketItem, list.Type())
					list.Nested(func(item *netlink.AttributeDecoder) error {
						for item.Next() {
							assert.EqualValues(t, attrSocketFD, item.Type())
							fds, _ := got[attrSockets].([]uint32)
							got[attrSockets] = append(fds, item.Uint32())
						}
						return nil
					})
				}
				return nil
			})
		default:
			got[ad.Type()] = ad.Uint64()
		}
	}
	require.NoError(t, ad.Err())
	return got
}

// A device has one connection, no timeout of requests, and a limit for the time without a connection.
func TestConnect(t *testing.T) {
	l, sent := fake(t, nil)
	d, err := l.Connect("longhorn:n/v", 1<<20, 512, 42)
	require.NoError(t, err)
	assert.Equal(t, Device{Index: 7, ID: "longhorn:n/v"}, d)
	require.Len(t, *sent, 1)
	got := (*sent)[0]
	assert.EqualValues(t, 1, got.number)
	assert.Equal(t, map[uint16]any{
		2: uint64(1 << 20), 3: uint64(512), 4: uint64(0), 8: uint64(10), 5: uint64(0x2d), 10: "longhorn:n/v", 7: []uint32{42},
	}, got.attrs)
}

func TestReconfigurations(t *testing.T) {
	d := Device{Index: 3, ID: "longhorn:n/v"}
	for _, tc := range []struct {
		name string
		do   func(*Link) error
		attr uint16
		want any
	}{
		{"another socket", func(l *Link) error { return l.Reconnect(d, 9) }, 7, []uint32{9}},
		{"a larger size", func(l *Link) error { return l.Resize(d, 4096) }, 2, uint64(4096)},
		{"the end with the last user", func(l *Link) error { return l.EndWithUsers(d, true) }, 6, uint64(2)},
		{"no end with the last user", func(l *Link) error { return l.EndWithUsers(d, false) }, 6, uint64(0)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l, sent := fake(t, nil)
			configure(t, l, d)
			require.NoError(t, tc.do(l))
			require.Len(t, *sent, 1)
			assert.EqualValues(t, 3, (*sent)[0].number)
			assert.Equal(t, map[uint16]any{1: uint32(3), 10: "longhorn:n/v", tc.attr: tc.want}, (*sent)[0].attrs)
		})
	}
}

// configure makes a device visible in sysfs.
func configure(t *testing.T, l *Link, d Device) {
	t.Helper()
	dir := l.dir(d)
	require.NoError(t, os.MkdirAll(dir, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "backend"), []byte(d.ID+"\n"), 0o600))
}

// The command to disconnect contains only a number. So Disconnect first checks with the kernel that the number belongs
// to the device, by a command that also prevents a change of this.
func TestTheDeviceOfAnotherProgramIsNotDisconnected(t *testing.T) {
	d := Device{Index: 3, ID: "longhorn:n/v"}
	l, sent := fake(t, nil)
	configure(t, l, d)
	require.NoError(t, l.Disconnect(d))
	require.Len(t, *sent, 2)
	assert.EqualValues(t, 3, (*sent)[0].number)
	assert.Equal(t, map[uint16]any{1: uint32(3), 10: "longhorn:n/v", 6: uint64(0)}, (*sent)[0].attrs, "it stays when its last user goes")
	assert.EqualValues(t, 2, (*sent)[1].number)
	assert.Equal(t, map[uint16]any{1: uint32(3)}, (*sent)[1].attrs)
	l, sent = fake(t, unix.EINVAL) // the number belongs to another device by now
	configure(t, l, d)
	require.NoError(t, l.Disconnect(d))
	require.Len(t, *sent, 1)
	assert.EqualValues(t, 3, (*sent)[0].number)
}

// The kernel accepts any ID for a device that has none. So only sysfs shows to which device the number belongs.
func TestADeviceWithoutAnIDIsNeverChanged(t *testing.T) {
	d := Device{Index: 3, ID: "longhorn:n/v"}
	for name, do := range map[string]func(*Link) error{
		"Reconnect":    func(l *Link) error { return l.Reconnect(d, 9) },
		"Resize":       func(l *Link) error { return l.Resize(d, 4096) },
		"EndWithUsers": func(l *Link) error { return l.EndWithUsers(d, true) },
	} {
		l, sent := fake(t, nil)
		require.NoError(t, os.MkdirAll(l.dir(d), 0o700))
		assert.ErrorIs(t, do(l), unix.EINVAL, name)
		assert.Empty(t, *sent, name)
	}
	for name, becomes := range map[string]func(t *testing.T, l *Link){
		"it has none":            func(t *testing.T, l *Link) { require.NoError(t, os.Remove(filepath.Join(l.dir(d), "backend"))) },
		"another program's":      func(t *testing.T, l *Link) { configure(t, l, Device{Index: 3, ID: "another program"}) },
		"sysfs cannot be read":   func(_ *testing.T, l *Link) { l.readFile = fails(unix.ENFILE) },
		"it went as it was read": func(_ *testing.T, l *Link) { l.readFile = fails(unix.ENODEV) },
	} {
		for _, when := range []string{"before", "meanwhile"} {
			t.Run(name+", "+when, func(t *testing.T) {
				l, sent := fake(t, nil)
				configure(t, l, d)
				if when == "before" {
					becomes(t, l)
				} else {
					dial := l.dial
					l.dial = func() (*genetlink.Conn, error) {
						becomes(t, l)
						return dial()
					}
				}
				err := l.Disconnect(d)
				assert.Equal(t, name == "sysfs cannot be read", err != nil, "%v", err)
				for _, c := range *sent {
					assert.NotEqualValues(t, cmdDisconnect, c.number, "another program's device is disconnected")
				}
			})
		}
	}
}

// fails returns a reader of files that always fails.
func fails(err error) func(string) ([]byte, error) {
	return func(path string) ([]byte, error) { return nil, &os.PathError{Op: "open", Path: path, Err: err} }
}

func TestADeviceIsGoneOnlyIfSysfsSaysSo(t *testing.T) {
	d := Device{Index: 3, ID: "longhorn:n/v"}
	reads := func(id string) func(string) ([]byte, error) {
		return func(string) ([]byte, error) { return []byte(id), nil }
	}
	for name, tc := range map[string]struct {
		read func(string) ([]byte, error)
		want bool
		err  error
	}{
		"its ID → it is there":                        {reads("longhorn:n/v\n"), true, nil},
		"another ID → gone":                           {reads("longhorn:n/w\n"), false, nil},
		"no ID → gone":                                {reads("\n"), false, nil},
		"no such file → gone":                         {fails(unix.ENOENT), false, nil},
		"the file went while it was open → gone":      {fails(unix.ENODEV), false, nil},
		"no descriptor left in the process → unknown": {fails(unix.EMFILE), false, unix.EMFILE},
		"no descriptor left in the node → unknown":    {fails(unix.ENFILE), false, unix.ENFILE},
		"no memory → unknown":                         {fails(unix.ENOMEM), false, unix.ENOMEM},
		"interrupted → unknown":                       {fails(unix.EINTR), false, unix.EINTR},
		"not allowed → unknown":                       {fails(unix.EACCES), false, unix.EACCES},
		"it cannot be read → unknown":                 {fails(unix.EIO), false, unix.EIO},
	} {
		t.Run(name, func(t *testing.T) {
			l, _ := fake(t, nil)
			l.readFile = tc.read
			is, err := l.IsConfigured(d)
			assert.Equal(t, tc.want, is)
			assert.ErrorIs(t, err, tc.err)
			require.NoError(t, os.MkdirAll(l.dir(d), 0o700))
			found, err := l.Configured("longhorn:n/v")
			assert.Equal(t, tc.want, len(found) == 1)
			assert.ErrorIs(t, err, tc.err)
		})
	}
	l, _ := fake(t, nil)
	l.sysfs = filepath.Join(l.sysfs, "missing")
	_, err := l.Configured("longhorn:n/")
	assert.Error(t, err, "no directory to list")
}

// A new connection to the kernel for each command would need descriptors, and a thread in another network namespace.
func TestCommandsShareAWayToTheKernel(t *testing.T) {
	d := Device{Index: 3, ID: "longhorn:n/v"}
	l, sent := fake(t, nil)
	configure(t, l, d)
	dial, dials := l.dial, 0
	l.dial = func() (*genetlink.Conn, error) {
		dials++
		return dial()
	}
	for range 5 {
		require.NoError(t, l.Reconnect(d, 9))
	}
	assert.Len(t, *sent, 5)
	assert.Equal(t, 1, dials)
}

// A connection on which the kernel refused a command is empty, and is used again: another one would need descriptors. A
// connection that failed may still contain an answer. A module that was loaded again has another number.
func TestAConnectionIsUsedAgainUnlessItFailed(t *testing.T) {
	for name, tc := range map[string]struct {
		answer error
		dials  int // by the command, and by the next one
		next   int
		fails  bool
	}{
		"the module was loaded again → the command is given again":     {unix.ENOENT, 2, 2, false},
		"refused, busy → the connection stays":                         {unix.EBUSY, 1, 1, true},
		"refused, another device → the connection stays":               {unix.EINVAL, 1, 1, true},
		"refused, no buffers → the connection stays":                   {unix.ENOBUFS, 1, 1, true},
		"refused, no descriptor → the connection stays":                {unix.EMFILE, 1, 1, true},
		"sending failed → the next command has another connection":     {os.NewSyscallError("sendmsg", unix.ENOBUFS), 1, 2, true},
		"an answer was lost → the next command has another connection": {os.NewSyscallError("recvmsg", unix.ENOBUFS), 1, 2, true},
		"no whole answer → the next command has another connection":    {io.ErrUnexpectedEOF, 1, 2, true},
		"failed with ENOENT → the command is not given again":          {os.NewSyscallError("recvmsg", unix.ENOENT), 1, 2, true},
	} {
		t.Run(name, func(t *testing.T) {
			d := Device{Index: 3, ID: "longhorn:n/v"}
			l, _ := fake(t, nil)
			configure(t, l, d)
			require.NoError(t, l.Reconnect(d, 9))
			answer := tc.answer
			l.conn = genltest.Dial(genltest.ServeFamily(genetlink.Family{ID: 30, Version: 1, Name: familyName},
				func(genetlink.Message, netlink.Message) ([]genetlink.Message, error) {
					defer func() { answer = nil }() // once
					var no syscall.Errno
					switch {
					case answer == nil:
						return nil, nil
					case !errors.As(answer, new(*os.SyscallError)) && errors.As(answer, &no):
						return nil, genltest.Error(int(no))
					}
					return nil, answer
				}))
			dial, dials := l.dial, 1
			l.dial = func() (*genetlink.Conn, error) {
				dials++
				return dial()
			}
			assert.Equal(t, tc.fails, l.Reconnect(d, 9) != nil)
			assert.Equal(t, tc.dials, dials)
			assert.NoError(t, l.Reconnect(d, 9))
			assert.Equal(t, tc.next, dials)
		})
	}
}

func TestRefusalsOfTheKernel(t *testing.T) {
	d := Device{Index: 3, ID: "longhorn:n/v"}
	l, _ := fake(t, unix.EINVAL)
	assert.ErrorIs(t, l.Reconnect(d, 9), unix.EINVAL)
	configure(t, l, d)
	assert.ErrorIs(t, l.Reconnect(d, 9), unix.EINVAL)
	require.NoError(t, os.RemoveAll(l.dir(d)))
	assert.NoError(t, l.Disconnect(d), "a device that is not there")
	configure(t, l, d)
	assert.NoError(t, l.Disconnect(d), "a device that was disconnected and is open still")
	busy, _ := fake(t, unix.ENOMEM)
	configure(t, busy, d)
	assert.ErrorIs(t, busy.Disconnect(d), unix.ENOMEM)
	found, err := l.Configured("longhorn:n/")
	require.NoError(t, err)
	assert.Equal(t, []Device{d}, found)
	found, err = l.Configured("longhorn:other/")
	require.NoError(t, err)
	assert.Empty(t, found)
}
