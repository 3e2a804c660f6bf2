// Command prometheus runs Prometheus' discovery of targets in Kubernetes, as a Prometheus does with
// one scrape configuration per role, until it gets SIGTERM.
package main

import (
	"context"
	"flag"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/discovery"
	"github.com/prometheus/prometheus/discovery/kubernetes"
)

// roles are those of Prometheus' example configuration for Kubernetes, and the newer ones.
var roles = []kubernetes.Role{
	kubernetes.RoleNode, kubernetes.RolePod, kubernetes.RoleService, kubernetes.RoleEndpoint,
	kubernetes.RoleEndpointSlice, kubernetes.RoleIngress,
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "file with the address of the API server")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, *kubeconfig); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, kubeconfig string) error {
	registry := prometheus.NewRegistry()
	metrics, err := discovery.CreateAndRegisterSDMetrics(registry)
	if err != nil {
		return err
	}
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	manager := discovery.NewManager(ctx, logger, registry, metrics)
	configs := map[string]discovery.Configs{}
	for _, role := range roles {
		config := kubernetes.DefaultSDConfig
		config.Role = role
		config.KubeConfig = kubeconfig
		configs[string(role)] = discovery.Configs{&config}
	}
	if err := manager.ApplyConfig(configs); err != nil {
		return err
	}
	go func() {
		for groups := range manager.SyncCh() {
			for role, found := range groups {
				logger.Info("targets", "role", role, "groups", len(found))
			}
		}
	}()
	if err := manager.Run(); ctx.Err() == nil {
		return err
	}
	return nil
}
