package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/url"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// connectionFlags are those of every command.
type connectionFlags struct {
	kubeconfig string
	namespace  string
	http1      bool
}

func (f *connectionFlags) register(flags *flag.FlagSet) {
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig of the server to talk to")
	flags.StringVar(&f.namespace, "namespace", "", "namespace; empty means all")
	flags.BoolVar(&f.http1, "http1", false, "HTTP/1.1 only: a connection for each watch")
}

// connect refuses a server that doesn't answer, because informers would retry for ever.
func (f *connectionFlags) connect(ctx context.Context) (*rest.Config, error) {
	if f.kubeconfig == "" {
		return nil, errors.New("--kubeconfig is required")
	}
	config, err := clientcmd.BuildConfigFromFlags("", f.kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	if f.http1 {
		config.NextProtos = []string{"http/1.1"}
	}
	config.UserAgent = "kubefan-informers"

	probe := rest.CopyConfig(config)
	probe.Timeout = 10 * time.Second
	client, err := discovery.NewDiscoveryClientForConfig(probe)
	if err != nil {
		return nil, err
	}
	if _, err := client.ServerVersion(); err != nil {
		return nil, fmt.Errorf("no answer from %s: %s", config.Host, reason(err))
	}
	return config, ctx.Err()
}

func newDialer() func(context.Context, string, string) (net.Conn, error) {
	return (&net.Dialer{Timeout: 10 * time.Second}).DialContext
}

// selectorFlags are those of the commands whose results are compared.
type selectorFlags struct {
	label string
	field string
}

func (f *selectorFlags) register(flags *flag.FlagSet) {
	flags.StringVar(&f.label, "selector", "", "label selector")
	flags.StringVar(&f.field, "field-selector", "", "field selector")
}

// reason leaves out the address and query that net/http puts before each error.
func reason(err error) string {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		return wrapped.Err.Error()
	}
	return err.Error()
}
