package page

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// loopback is the address on which the page is served to this machine. The name localhost may mean another address, on
// which another program could listen.
const loopback = "127.0.0.1"

// Options specify what Run does.
type Options struct {
	Kube      kubernetes.Interface
	Namespace string
	// Account is the ServiceAccount for which a token is created; empty: no token is created.
	Account string
	// Duration is how long the token is valid.
	Duration time.Duration
	// Port is the port of this machine; 0: the port of the REST API if it is free, or else any free port.
	Port int
	// Tunnel connects a port of this machine with a pod.
	Tunnel Tunnel
	// Browse opens an address in a browser; nil: no browser is opened.
	Browse func(ctx context.Context, address string) error
	Clock  clock.Clock
	// Out is where the address and the token are printed; it must not be a log.
	Out io.Writer
}

// Tunnel forwards a port of the loopback interface to the REST API in a pod, until ctx ends or the connection is lost.
// Port 0 means any free port. It calls ready with the port, once it listens.
type Tunnel func(ctx context.Context, pod string, port int, ready func(port int)) error

// How long Run waits before it connects again: longer each time, until a connection has lasted.
const (
	firstWait   = time.Second
	longestWait = 15 * time.Second
	// stableAfter is how long a connection must have lasted, so that the next wait is the first one again.
	stableAfter = 10 * time.Second
)

// Run forwards the port, prints the address and the token, and returns when ctx ends. When the connection is lost, it
// connects to a daemon again.
func Run(ctx context.Context, o Options) error {
	pod, err := o.daemon(ctx, nil)
	if err != nil {
		return err
	}
	port, err := freePort(ctx, o.Port)
	if err != nil {
		return err
	}
	token, err := o.token(ctx)
	if err != nil {
		return err
	}
	shown := false
	wait := firstWait
	failed := map[string]bool{} // pods to which no first connection was possible
	for {
		var connected time.Time
		err := o.Tunnel(ctx, pod, port, func(chosen int) {
			port, connected = chosen, o.Clock.Now()
			if !shown {
				o.show(ctx, chosen, token)
				shown = true
			} else {
				fmt.Fprintf(o.Out, "Connected again, to pod %s.\n", pod)
			}
		})
		if ctx.Err() != nil {
			return nil
		}
		if !shown {
			failed[pod] = true
			next, listing := o.daemon(ctx, failed)
			if listing != nil || failed[next] {
				return tunnelError(pod, o.Namespace, err)
			}
			pod = next
			continue
		}
		if !connected.IsZero() && o.Clock.Since(connected) >= stableAfter {
			wait = firstWait
		}
		fmt.Fprintf(o.Out, "The connection to pod %s was lost: %v. Connecting again.\n", pod, cmp.Or(err, errClosed))
		if pod, wait, err = o.awaitDaemon(ctx, pod, wait); err != nil || ctx.Err() != nil {
			return err
		}
		// The user's browser still sends its cookie to this port.
		if _, err := freePort(ctx, port); err != nil {
			return err
		}
	}
}

// awaitDaemon waits until there is a daemon to connect to: another one than the given pod, if another is ready.
// It returns how long to wait the next time. When ctx ends, the pod is meaningless.
func (o Options) awaitDaemon(ctx context.Context, lost string, wait time.Duration) (pod string, next time.Duration, err error) {
	for {
		select {
		case <-ctx.Done():
			return "", wait, nil
		case <-o.Clock.After(wait):
		}
		wait = min(2*wait, longestWait)
		if pod, err := o.daemon(ctx, map[string]bool{lost: true}); err == nil {
			return pod, wait, nil
		}
	}
}

// errClosed is the reason of a connection that ended without an error.
var errClosed = errors.New("the API server closed it")

// tunnelError explains why the first connection to a pod failed. The API server's refusal is only a text in err.
func tunnelError(pod, namespace string, err error) error {
	return fmt.Errorf("forward a port to pod %s: %w; your account needs the right create on pods/portforward in namespace %s", pod, cmp.Or(err, errClosed), namespace)
}

// show prints where the page is and how to log in, and opens the browser.
func (o Options) show(ctx context.Context, port int, t token) {
	address := "https://" + net.JoinHostPort(loopback, strconv.Itoa(port))
	fmt.Fprintf(o.Out, "Page:   %s\n", address)
	if t.text != "" {
		fmt.Fprintf(o.Out, "Token:  %s\n\n", t.text)
		fmt.Fprintf(o.Out, "Log in with the token. It is valid until %s.\nIt has the rights of ServiceAccount %s in namespace %s.\n",
			t.expires.Local().Format("2006-01-02 15:04 MST"), o.Account, o.Namespace)
	}
	fmt.Fprintln(o.Out, "The browser warns about the certificate, because the installation's own CA signed it.")
	fmt.Fprintln(o.Out, "The page is reachable from this machine only, and as long as this command runs. Ctrl-C stops it.")
	if o.Browse == nil {
		return
	}
	if err := o.Browse(ctx, address); err != nil {
		fmt.Fprintf(o.Out, "The browser could not be opened (%v). Open the address yourself.\n", err)
	}
}

// daemon returns a pod that serves the page: one that is ready, the first by its name. It returns one of avoid only if
// no other is ready.
func (o Options) daemon(ctx context.Context, avoid map[string]bool) (string, error) {
	list, err := o.Kube.CoreV1().Pods(o.Namespace).List(ctx, metav1.ListOptions{LabelSelector: types.LabelApp + "=" + types.AppManager + "," + types.InstallationLabel})
	if apierrors.IsForbidden(err) {
		return "", fmt.Errorf("your account may not list pods in namespace %s: request the rights list on pods and create on pods/portforward there", o.Namespace)
	}
	if err != nil {
		return "", fmt.Errorf("list the daemons: %w", err)
	}
	slices.SortFunc(list.Items, func(a, b corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	fallback := ""
	for i := range list.Items {
		switch name := list.Items[i].Name; {
		case !isServing(&list.Items[i]):
		case !avoid[name]:
			return name, nil
		default:
			fallback = cmp.Or(fallback, name)
		}
	}
	if fallback != "" {
		return fallback, nil
	}
	return "", fmt.Errorf("no daemon is ready to serve the page: see why with kubectl -n %s get pods -l %s=%s", o.Namespace, types.LabelApp, types.AppManager)
}

func isServing(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// freePort returns the port of this machine that should be used: the one that the user named, if it is free, or the
// port of the REST API, or 0 for any.
func freePort(ctx context.Context, named int) (int, error) {
	port := cmp.Or(named, types.APIPort)
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp4", net.JoinHostPort(loopback, strconv.Itoa(port)))
	switch {
	case err == nil:
		return port, listener.Close()
	case named == 0:
		return 0, nil
	}
	return 0, fmt.Errorf("port %d of this machine cannot be used: %w; name another one with --port, or omit --port for any free port", named, err)
}
