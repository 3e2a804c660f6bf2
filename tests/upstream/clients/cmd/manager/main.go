// Command manager is a controller-runtime manager for tests. Its controller copies each ConfigMap
// of a namespace to a Secret with the same name, and checks that it reads its own writes.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	clientcache "k8s.io/client-go/tools/cache"
)

const workers = 4

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer cancel()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "manager:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	// controller-runtime has a flag of this name in the default set.
	flags := flag.NewFlagSet("manager", flag.ExitOnError)
	kubeconfig := flags.String("kubeconfig", "", "kubeconfig of the server")
	namespace := flags.String("namespace", "", "namespace of the ConfigMaps and Secrets")
	_ = flags.Parse(os.Args[1:])
	if *kubeconfig == "" || *namespace == "" {
		return errors.New("--kubeconfig and --namespace are required")
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1
	config.UserAgent = "kubefan-manager"
	ctrl.SetLogger(logr.Discard())

	copies := newCopier()
	manager, err := newManager(copies, config, *namespace)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	if !manager.GetCache().WaitForCacheSync(ctx) {
		cancel()
		return errors.Join(errors.New("the cache did not sync"), <-ended)
	}
	err = answerCommands(copies, manager.GetCache(), *namespace)
	cancel()
	return errors.Join(err, <-ended)
}

func newManager(copies *copier, config *rest.Config, namespace string) (ctrl.Manager, error) {
	config.Wrap(copies.requests.observe)
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Cache: cache.Options{
			DefaultNamespaces: map[string]cache.Config{namespace: {}},
			DefaultWatchErrorHandler: func(_ context.Context, _ *clientcache.Reflector, err error) {
				copies.watchErrors.add(err.Error())
			},
		},
		Client: client.Options{
			Cache: &client.CacheOptions{EnableReadYourWritesConsistency: ptr.To(true)},
		},
		Metrics: metricsserver.Options{BindAddress: "0"},
	})
	if err != nil {
		return nil, err
	}
	copies.client = manager.GetClient()
	return manager, ctrl.NewControllerManagedBy(manager).
		For(&corev1.ConfigMap{}).
		Watches(&corev1.Secret{}, &handler.EnqueueRequestForObject{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(copies)
}

// answerCommands prints a line when the cache has synced. Then it answers each line "report" on
// stdin with one line of JSON, until "quit" or the end of input.
func answerCommands(copies *copier, reader client.Reader, namespace string) error {
	output := json.NewEncoder(os.Stdout)
	if err := output.Encode(map[string]any{"synced": true}); err != nil {
		return err
	}
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() && input.Text() != "quit" {
		if command := input.Text(); command != "report" {
			return fmt.Errorf("unknown command %q: use report or quit", command)
		}
		report, err := copies.report(reader, namespace)
		if err != nil {
			return err
		}
		if err := output.Encode(report); err != nil {
			return err
		}
	}
	return input.Err()
}
