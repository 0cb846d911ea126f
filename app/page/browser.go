package page

import (
	"context"
	"os/exec"
	"runtime"
)

// openers are the commands that open an address in the user's browser, by operating system.
var openers = map[string][]string{
	"darwin":  {"open"},
	"windows": {"rundll32", "url.dll,FileProtocolHandler"},
}

// Browse opens an address in the user's browser. It does not wait for the browser, which keeps running after this
// program.
func Browse(ctx context.Context, address string) error {
	opener, ok := openers[runtime.GOOS]
	if !ok {
		opener = []string{"xdg-open"}
	}
	command := exec.CommandContext(context.WithoutCancel(ctx), opener[0], append(opener[1:len(opener):len(opener)], address)...)
	if err := command.Start(); err != nil {
		return err
	}
	return command.Process.Release()
}
