package trim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"time"

	"github.com/longhorn-lep/longhorn-manager/manager"
	"github.com/longhorn-lep/longhorn-manager/util/fstrim"
)

// Command is this program's command that trims one file system: longhorn-manager trim-filesystem HOST-ROOT DEVICE. The
// trim runs in a separate process because the kernel stops a trim only when its process exits.
const Command = "trim-filesystem"

// processOutput is the output of the process.
type processOutput struct {
	TrimmedBytes int64 `json:"trimmedBytes"`
	// Reason is a key of reasons, or empty. Message is the reason of a failure; empty: the trim succeeded.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// The reasons for which callers get an error text of their own.
const (
	noDevice    = "NoDevice"
	notMounted  = "NotMounted"
	unsupported = "Unsupported"
	bound       = "Bound"
)

var reasons = map[string]error{noDevice: fstrim.ErrNoDevice, notMounted: fstrim.ErrNotMounted, unsupported: fstrim.ErrUnsupported, bound: fstrim.ErrBound}

// Main is the main function of the process.
func Main(out io.Writer, hostRoot, device string) error {
	var s processOutput
	var err error
	if s.TrimmedBytes, err = fstrim.Trim(hostRoot, device); err != nil {
		s.Message = err.Error()
		for reason, known := range reasons {
			if errors.Is(err, known) {
				s.Reason = reason
			}
		}
	}
	return json.NewEncoder(out).Encode(s)
}

// Process returns an Options.Run that starts a program for each trim, with HOST-ROOT and DEVICE as additional
// arguments. program must print what Main prints.
func Process(node, hostRoot string, deviceOf func(volume string) string, program ...string) func(context.Context, string) (int64, error) {
	return func(ctx context.Context, volume string) (int64, error) {
		args := append(append([]string{}, program[1:]...), hostRoot, deviceOf(volume))
		cmd := exec.CommandContext(ctx, program[0], args...)
		cmd.WaitDelay = time.Second
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Run(); err != nil {
			return 0, fmt.Errorf("trim volume %s in a process: %w: %.500s", volume, err, errs.String())
		}
		var s processOutput
		if err := json.Unmarshal(out.Bytes(), &s); err != nil {
			return 0, fmt.Errorf("parse the output of the trim of volume %s: %w", volume, err)
		}
		return s.TrimmedBytes, s.problem(node, volume)
	}
}

// problem returns the error for callers.
func (s processOutput) problem(node, volume string) error {
	conflict := func(reason string) error {
		return &manager.Problem{Class: manager.ErrConflict, Text: fmt.Sprintf("volume %q cannot be trimmed: %s", volume, reason)}
	}
	switch s.Reason {
	case noDevice:
		return conflict(fmt.Sprintf("it has no block device on node %q", node))
	case notMounted:
		return conflict(fmt.Sprintf("no file system of the volume is mounted on node %q: either no pod uses the volume, or a pod uses it as a block device", node))
	case bound:
		return conflict(fmt.Sprintf("pods on node %q use it as a block device, so only these pods know its content", node))
	case unsupported:
		return conflict("its file system or its device does not support a trim")
	}
	if s.Message != "" {
		return &manager.Problem{Class: manager.ErrUnavailable, Text: fmt.Sprintf("volume %q was not trimmed on node %q: %s", volume, node, s.Message)}
	}
	return nil
}
