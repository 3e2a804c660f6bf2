// Command uncached runs a client without informers, which reads by GETs only, while a foreign writer
// changes the client's objects 50 times a second through another server. At the end it prints what
// the client did as a line of JSON.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// clients has the values of --client.
var clients = map[string]func(context.Context, *scene) error{
	"retry":  retryOnConflict,
	"create": createOrGet,
	"manager": func(ctx context.Context, s *scene) error {
		return manage(ctx, s, false)
	},
	"reading-manager": func(ctx context.Context, s *scene) error {
		return manage(ctx, s, true)
	},
}

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer cancel()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "uncached:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	// controller-runtime has a flag named kubeconfig in the default set.
	flags := flag.NewFlagSet("uncached", flag.ExitOnError)
	client := flags.String("client", "", "retry, create, manager, or reading-manager, which also reads each of its writes")
	kubeconfig := flags.String("kubeconfig", "", "kubeconfig of the client")
	foreign := flags.String("foreign-kubeconfig", "", "kubeconfig of the foreign writer")
	namespace := flags.String("namespace", "", "a namespace without ConfigMaps")
	iterations := flags.Int("iterations", 100, "number of the client's iterations, or of the foreign writes that a manager follows")
	_ = flags.Parse(os.Args[1:])
	work, isKnown := clients[*client]
	if !isKnown {
		return fmt.Errorf("unknown client %q: use retry, create, manager or reading-manager", *client)
	}
	if *kubeconfig == "" || *foreign == "" || *namespace == "" {
		return errors.New("--kubeconfig, --foreign-kubeconfig and --namespace are required")
	}
	s, err := newScene(*kubeconfig, *foreign, *namespace, *iterations)
	if err != nil {
		return err
	}
	if err := work(ctx, s); err != nil {
		return err
	}
	report, err := s.report(ctx)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(report)
}
