package components

import (
	"flag"
	"fmt"
	"os"

	"github.com/coredns/caddy"
	_ "github.com/coredns/coredns/core/dnsserver"    // the server type "dns"
	_ "github.com/coredns/coredns/plugin/cache"      // plugins that the cluster's Corefile names
	_ "github.com/coredns/coredns/plugin/errors"     // …
	_ "github.com/coredns/coredns/plugin/kubernetes" // …
)

// runCoreDNS serves the Corefile until it gets a signal to stop.
func runCoreDNS() int {
	flags := flag.NewFlagSet("coredns", flag.ExitOnError)
	conf := flags.String("conf", "Corefile", "configuration file")
	_ = flags.Parse(os.Args[1:]) // exits on error
	if err := serveDNS(*conf); err != nil {
		fmt.Fprintln(os.Stderr, "coredns:", err)
		return 1
	}
	return 0
}

func serveDNS(conf string) error {
	corefile, err := os.ReadFile(conf)
	if err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	caddy.Quiet = true
	caddy.TrapSignals()
	instance, err := caddy.Start(caddy.CaddyfileInput{Filepath: conf, Contents: corefile, ServerTypeName: "dns"})
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	instance.Wait()
	return nil
}
