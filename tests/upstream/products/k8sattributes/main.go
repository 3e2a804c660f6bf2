// Command k8sattributes runs the OpenTelemetry collector's processor k8sattributes with its default
// configuration, until it gets SIGTERM.
package main

import (
	"context"
	"flag"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/open-telemetry/opentelemetry-collector-contrib/processor/k8sattributesprocessor"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/processor/processortest"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "file with the address of the API server")
	flag.Parse()
	// The processor has no setting for the file.
	if err := os.Setenv("KUBECONFIG", *kubeconfig); err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	factory := k8sattributesprocessor.NewFactory()
	config := factory.CreateDefaultConfig()
	// Outside of a pod there is no service account.
	settings := confmap.NewFromStringMap(map[string]any{"auth_type": "kubeConfig"})
	if err := settings.Unmarshal(config); err != nil {
		return err
	}
	processor, err := factory.CreateTraces(ctx, processortest.NewNopSettings(factory.Type()), config, consumertest.NewNop())
	if err != nil {
		return err
	}
	if err := processor.Start(ctx, componenttest.NewNopHost()); err != nil {
		return err
	}
	<-ctx.Done()
	return processor.Shutdown(context.Background())
}
