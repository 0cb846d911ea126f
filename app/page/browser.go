package page

import (
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"time"
)

// openers are the commands that open an address in the user's browser, by operating system.
var openers = map[string][]string{
	"darwin":  {"open"},
	"windows": {"rundll32", "url.dll,FileProtocolHandler"},
}

// browseWithin is how long Browse waits for the command that opens a browser. A command that fails does so at once. One
// that succeeds may run as long as the browser.
const browseWithin = 3 * time.Second

// Browse opens an address in the user's browser. It does not wait for the browser, which keeps running after this
// program. Without a browser, the command exits with an error, which Browse returns.
func Browse(ctx context.Context, address string) error {
	opener, ok := openers[runtime.GOOS]
	if !ok {
		opener = []string{"xdg-open"}
	}
	command := exec.CommandContext(context.WithoutCancel(ctx), opener[0], append(opener[1:len(opener):len(opener)], address)...)
	if err := command.Start(); err != nil {
		return err
	}
	exited := make(chan error, 1)
	go func() { exited <- command.Wait() }()
	select {
	case err := <-exited:
		if err != nil {
			return fmt.Errorf("%s: %w", opener[0], err)
		}
		return nil
	case <-time.After(browseWithin):
		return nil
	}
}
