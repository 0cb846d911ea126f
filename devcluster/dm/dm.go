// Package dm puts a disk behind a device-mapper device whose behaviour can be switched while the disk is in use: slow,
// failing, hanging, or losing writes. It renders tables and commands; it must not know on which machine they run.
package dm

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Kind is the behaviour of a disk.
type Kind string

// The behaviours.
const (
	// OK carries out each read, write and flush immediately.
	OK Kind = "ok"
	// Slow carries out each read, write and flush after a delay.
	Slow Kind = "slow"
	// Fail answers every read, write and flush with an I/O error.
	Fail Kind = "fail"
	// FailWrites answers every write and flush with an I/O error.
	FailWrites Kind = "fail-writes"
	// Hang answers nothing until another behaviour is selected.
	Hang Kind = "hang"
	// DropWrites acknowledges every write and flush and carries out none of them.
	DropWrites Kind = "drop-writes"
)

// State is a behaviour with its parameter. The zero value is OK.
type State struct {
	Kind  Kind          `json:"kind"`
	Delay time.Duration `json:"delay,omitempty"`
}

// ErrState lists the allowed states.
var ErrState = errors.New("a disk is one of: ok, slow DELAY_MS, fail, fail-writes, hang, drop-writes")

// ParseState parses the output of String, split at the space.
func ParseState(words []string) (State, error) {
	if len(words) == 0 {
		return State{}, ErrState
	}
	s := State{Kind: Kind(words[0])}
	switch {
	case s.Kind == Slow && len(words) == 2:
		ms, err := strconv.Atoi(words[1])
		if err != nil || ms < 1 || ms > 3_600_000 {
			return State{}, fmt.Errorf("delay %q: give milliseconds, from 1 to 3600000", words[1])
		}
		s.Delay = time.Duration(ms) * time.Millisecond
		return s, nil
	case len(words) != 1:
		return State{}, ErrState
	}
	switch s.Kind {
	case OK, Fail, FailWrites, Hang, DropWrites:
		return s, nil
	}
	return State{}, ErrState
}

func (s State) String() string {
	switch s.Kind {
	case "":
		return string(OK)
	case Slow:
		return fmt.Sprintf("%s %d", Slow, s.Delay.Milliseconds())
	}
	return string(s.Kind)
}

// Disk is a block device and the device-mapper device in front of it.
type Disk struct {
	// Name is the name of the device-mapper device.
	Name string
	// Device is the disk behind it.
	Device string
	Bytes  int64
}

// Path returns the path of the device-mapper device.
func (d Disk) Path() string { return "/dev/mapper/" + d.Name }

// table renders the table for dmsetup(8). The targets that fail use flakey, with a period that has no seconds of normal
// operation. They do not use error, because that target acknowledges flushes.
func (d Disk) table(s State) string {
	sectors := d.Bytes / 512
	flakey := fmt.Sprintf("0 %d flakey %s 0 0 1", sectors, d.Device)
	switch s.Kind {
	case Slow:
		return fmt.Sprintf("0 %d delay %s 0 %d", sectors, d.Device, s.Delay.Milliseconds())
	case Fail:
		return flakey
	case FailWrites:
		return flakey + " 1 error_writes"
	case DropWrites:
		return flakey + " 1 drop_writes"
	}
	return fmt.Sprintf("0 %d linear %s 0", sectors, d.Device)
}

// Modules are the kernel modules of the targets.
func Modules() []string { return []string{"dm-mod", "dm-delay", "dm-flakey"} }

// Env makes dmsetup not wait for udev, which does not run.
const Env = "DM_DISABLE_UDEV=1"

// CreateCommand returns the command that creates the device with the behaviour OK.
func (d Disk) CreateCommand() []string {
	return []string{"env", Env, "dmsetup", "create", d.Name, "--table", d.table(State{})}
}

// SwitchCommand returns the command that changes the behaviour from any to any other. Waiting requests stay pending and
// do not fail. The command does not freeze a file system first, because that file system may be the one that hangs. A
// device that hangs is suspended with the table of OK, so that the waiting requests are carried out when it is resumed.
func (d Disk) SwitchCommand(s State) []string {
	steps := []string{
		"export " + Env,
		fmt.Sprintf("dmsetup suspend --noflush --nolockfs %s", d.Name),
		fmt.Sprintf("dmsetup load %s --table '%s'", d.Name, d.table(s)),
	}
	if s.Kind != Hang {
		steps = append(steps, "dmsetup resume --noflush --nolockfs "+d.Name)
	}
	return []string{"sh", "-ec", strings.Join(steps, "\n")}
}
