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

// connectionFlags are the flags that every command has.
type connectionFlags struct {
	kubeconfig string
	namespace  string
	http1      bool
}

func (f *connectionFlags) register(flags *flag.FlagSet) {
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig of the server")
	flags.StringVar(&f.namespace, "namespace", "", "namespace; all namespaces if empty")
	flags.BoolVar(&f.http1, "http1", false, "use only HTTP/1.1, so that each watch has its own connection")
}

// connect reads the kubeconfig and checks that the server answers, because informers would retry
// forever.
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

// selectorFlags are the flags of commands that can be limited to a selection.
type selectorFlags struct {
	label string
	field string
}

func (f *selectorFlags) register(flags *flag.FlagSet) {
	flags.StringVar(&f.label, "selector", "", "label selector")
	flags.StringVar(&f.field, "field-selector", "", "field selector")
}

// reason returns the error's message without the method and URL that net/http puts before it.
func reason(err error) string {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		return wrapped.Err.Error()
	}
	return err.Error()
}
