package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// runList lists the resources and prints them in the format of an informer's dump.
func runList(ctx context.Context, arguments []string) error {
	var connection connectionFlags
	flags := flag.NewFlagSet("informers list", flag.ExitOnError)
	connection.register(flags)
	var selectors selectorFlags
	selectors.register(flags)
	resources := flags.String("resources", defaultResources, "RESOURCE:CLIENT,…")
	_ = flags.Parse(arguments)
	sources, err := parseSources(*resources)
	if err != nil {
		return err
	}
	config, err := connection.connect(ctx)
	if err != nil {
		return err
	}
	result := dump{Resources: map[string]resourceState{}}
	for _, source := range sources {
		objects, err := source.list(ctx, config, connection.namespace, metav1.ListOptions{
			LabelSelector: selectors.label,
			FieldSelector: selectors.field,
		})
		if err != nil {
			return fmt.Errorf("list %s: %w", source, err)
		}
		state, err := stateOf(objects)
		if err != nil {
			return fmt.Errorf("list %s: %w", source, err)
		}
		result.Resources[source.String()] = state
	}
	return writeLine(os.Stdout, result)
}
