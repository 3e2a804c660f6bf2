// Command configmaps is the controller of kubefan's example namespace_configmap, built on
// controller-runtime: it keeps a ConfigMap in each Namespace with a label. The name of the ConfigMap
// and of the Lease is its own, so that both controllers can work on the same namespaces. It prints
// "leading" when it has its Lease, and ends on SIGTERM.
package main

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// label selects the namespaces if its value is "true".
	label = "kubefan-example"
	// name is that of the ConfigMaps and of the Lease in the namespace "default".
	name    = "kubefan-twin"
	workers = 4
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer cancel()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "configmaps:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	// controller-runtime has a flag of this name in the default set.
	flags := flag.NewFlagSet("configmaps", flag.ExitOnError)
	kubeconfig := flags.String("kubeconfig", "", "kubeconfig of the server")
	_ = flags.Parse(os.Args[1:])
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1
	ctrl.SetLogger(logr.Discard())
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Client: client.Options{
			Cache: &client.CacheOptions{EnableReadYourWritesConsistency: ptr.To(true)},
		},
		LeaderElection:                true,
		LeaderElectionID:              name,
		LeaderElectionNamespace:       "default",
		LeaderElectionReleaseOnCancel: true,
		Metrics:                       metricsserver.Options{BindAddress: "0"},
	})
	if err != nil {
		return err
	}
	go func() {
		<-manager.Elected()
		fmt.Println("leading")
	}()
	err = ctrl.NewControllerManagedBy(manager).
		For(&corev1.Namespace{}).
		Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(namespaceOf)).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(&mapper{client: manager.GetClient()})
	if err != nil {
		return err
	}
	return manager.Start(ctx)
}

// namespaceOf requests the namespace of one of the controller's ConfigMaps.
func namespaceOf(_ context.Context, object client.Object) []reconcile.Request {
	if object.GetName() != name {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: object.GetNamespace()}}}
}

// mapper keeps the ConfigMaps.
type mapper struct {
	client client.Client
}

// Reconcile makes the ConfigMap of one namespace as the namespace's labels say.
func (m *mapper) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	namespace := &corev1.Namespace{}
	if err := m.client.Get(ctx, request.NamespacedName, namespace); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if namespace.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	found := &corev1.ConfigMap{}
	err := m.client.Get(ctx, client.ObjectKey{Namespace: request.Name, Name: name}, found)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, err
	}
	exists, isWanted := err == nil, namespace.Labels[label] == "true"
	data := map[string]string{}
	for key, value := range namespace.Labels {
		data[strings.ReplaceAll(key, "/", ".")] = value
	}
	switch {
	case !isWanted && exists:
		err = client.IgnoreNotFound(m.client.Delete(ctx, found))
	case !isWanted, exists && maps.Equal(found.Data, data):
		err = nil
	case exists:
		found.Data = data
		err = m.client.Update(ctx, found)
	default:
		found.Namespace, found.Name, found.Data = request.Name, name, data
		err = m.client.Create(ctx, found)
	}
	return reconcile.Result{}, err
}
