package components

import (
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/signal"

	"go.etcd.io/etcd/server/v3/embed"
	"golang.org/x/sys/unix"
)

// runEtcd serves one member on loopback until SIGTERM. It writes without fsync, because the cluster does not survive a
// reboot of the machine.
func runEtcd() int {
	flags := flag.NewFlagSet("etcd", flag.ExitOnError)
	dir := flags.String("data-dir", "", "directory of the database")
	client := flags.String("listen-client-url", "http://127.0.0.1:2379", "where clients are served")
	peer := flags.String("listen-peer-url", "http://127.0.0.1:2380", "where peers would be served")
	_ = flags.Parse(os.Args[1:]) // exits on error
	if err := serveEtcd(*dir, *client, *peer); err != nil {
		fmt.Fprintln(os.Stderr, "etcd:", err)
		return 1
	}
	return 0
}

func serveEtcd(dir, client, peer string) error {
	clientURL, err := url.Parse(client)
	if err != nil {
		return fmt.Errorf("parse client URL: %w", err)
	}
	peerURL, err := url.Parse(peer)
	if err != nil {
		return fmt.Errorf("parse peer URL: %w", err)
	}
	c := embed.NewConfig()
	c.Dir = dir
	c.UnsafeNoFsync = true
	c.LogLevel = "warn"
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{*clientURL}, []url.URL{*clientURL}
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{*peerURL}, []url.URL{*peerURL}
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	server, err := embed.StartEtcd(c)
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	defer server.Close()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, unix.SIGTERM, unix.SIGINT)
	select {
	case <-stop:
		return nil
	case err := <-server.Err():
		return fmt.Errorf("serve: %w", err)
	}
}
