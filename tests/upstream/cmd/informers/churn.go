package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

const mostObjectsOfAKind = 25

var colors = []string{"red", "green", "blue"}

// runChurn sends random writes to the server. The same seed gives the same writes.
func runChurn(ctx context.Context, arguments []string) error {
	var connection connectionFlags
	flags := flag.NewFlagSet("informers churn", flag.ExitOnError)
	connection.register(flags)
	seed := flags.Uint64("seed", 1, "seed of the random choices, and part of the objects' names")
	writes := flags.Int("writes", 1000, "number of writes")
	interval := flags.Duration("interval", 0, "pause between two writes")
	resources := flags.String("resources", "pods,configmaps,secrets,deployments,services,widgets", "RESOURCE,…")
	_ = flags.Parse(arguments)
	if connection.namespace == "" {
		return errors.New("--namespace is required")
	}
	sources, err := parseSources(*resources)
	if err != nil {
		return err
	}
	config, err := connection.connect(ctx)
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	if err := ensureNamespace(ctx, client, connection.namespace); err != nil {
		return err
	}

	churn := &churn{
		random: rand.New(rand.NewPCG(*seed, 0)),
		prefix: fmt.Sprintf("churn-%d-", *seed),
	}
	for _, source := range sources {
		churn.kinds = append(churn.kinds, &churnedKind{
			resource: source.resource,
			client:   client.Resource(source.resource).Namespace(connection.namespace),
		})
	}
	started := time.Now()
	for churn.writes < *writes {
		if err := churn.step(ctx); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(*interval):
		}
	}
	return writeLine(os.Stdout, map[string]any{
		"done": true, "writes": churn.writes, "milliseconds": time.Since(started).Milliseconds(),
	})
}

func ensureNamespace(ctx context.Context, client dynamic.Interface, name string) error {
	namespaces := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"})
	_, err := namespaces.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name},
	}}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

type churnedKind struct {
	resource schema.GroupVersionResource
	client   dynamic.ResourceInterface
	alive    []string
	made     int
}

type churn struct {
	random *rand.Rand
	prefix string
	kinds  []*churnedKind
	writes int
}

func (c *churn) step(ctx context.Context) error {
	kind := c.kinds[c.random.IntN(len(c.kinds))]
	choice := c.random.IntN(100)
	switch {
	case len(kind.alive) == 0 || choice < 30 && len(kind.alive) < mostObjectsOfAKind:
		name := fmt.Sprintf("%s%d", c.prefix, kind.made)
		kind.made++
		kind.alive = append(kind.alive, name)
		return c.create(ctx, kind, name)
	case choice < 60:
		return c.patch(ctx, kind, c.change(kind))
	case choice < 80:
		return c.patch(ctx, kind, c.labels())
	case choice < 85:
		name := kind.alive[c.random.IntN(len(kind.alive))]
		if err := c.delete(ctx, kind, name); err != nil {
			return err
		}
		return c.create(ctx, kind, name)
	default:
		index := c.random.IntN(len(kind.alive))
		name := kind.alive[index]
		kind.alive = append(kind.alive[:index], kind.alive[index+1:]...)
		return c.delete(ctx, kind, name)
	}
}

func (c *churn) create(ctx context.Context, kind *churnedKind, name string) error {
	c.writes++
	object := c.object(kind.resource, name)
	_, err := kind.client.Create(ctx, object, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		// The object was left by an earlier run with this seed.
		return nil
	}
	return err
}

func (c *churn) delete(ctx context.Context, kind *churnedKind, name string) error {
	c.writes++
	return kind.client.Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
}

func (c *churn) patch(ctx context.Context, kind *churnedKind, fields map[string]any) error {
	c.writes++
	name := kind.alive[c.random.IntN(len(kind.alive))]
	body, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	_, err = kind.client.Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{})
	return err
}

// labels returns a patch that sets or removes labels, so that objects start and stop to match
// selectors.
func (c *churn) labels() map[string]any {
	labels := map[string]any{"tier": fmt.Sprintf("tier-%d", c.random.IntN(3)), "marked": nil}
	if c.random.IntN(2) == 0 {
		labels["marked"] = "yes"
	}
	return map[string]any{"metadata": map[string]any{"labels": labels}}
}

func (c *churn) change(kind *churnedKind) map[string]any {
	text := c.text()
	switch kind.resource.Resource {
	case "configmaps":
		return map[string]any{"data": map[string]any{"text": text}}
	case "secrets":
		return map[string]any{"stringData": map[string]any{"text": text}}
	case "deployments":
		return map[string]any{"spec": map[string]any{"replicas": int64(c.random.IntN(10))}}
	case "widgets":
		return map[string]any{"spec": map[string]any{"color": c.color(), "note": text}}
	default:
		return map[string]any{"metadata": map[string]any{"annotations": map[string]any{"text": text}}}
	}
}

func (c *churn) object(resource schema.GroupVersionResource, name string) *unstructured.Unstructured {
	app := map[string]any{"app": name}
	container := []any{map[string]any{"name": "main", "image": "example.com/none"}}
	object := map[string]any{
		"apiVersion": resource.GroupVersion().String(),
		"metadata": map[string]any{
			"name":   name,
			"labels": map[string]any{"app": name, "tier": fmt.Sprintf("tier-%d", c.random.IntN(3))},
		},
	}
	switch resource.Resource {
	case "pods":
		object["kind"] = "Pod"
		object["spec"] = map[string]any{"containers": container}
	case "configmaps":
		object["kind"] = "ConfigMap"
		object["data"] = map[string]any{"text": c.text()}
	case "secrets":
		object["kind"] = "Secret"
		object["stringData"] = map[string]any{"text": c.text()}
	case "deployments":
		object["kind"] = "Deployment"
		object["spec"] = map[string]any{
			"replicas": int64(1),
			"selector": map[string]any{"matchLabels": app},
			"template": map[string]any{
				"metadata": map[string]any{"labels": app},
				"spec":     map[string]any{"containers": container},
			},
		}
	case "services":
		object["kind"] = "Service"
		// The service is headless, because a test server has few cluster addresses.
		object["spec"] = map[string]any{"clusterIP": "None", "selector": app, "ports": []any{map[string]any{"port": int64(80)}}}
	case "widgets":
		object["kind"] = "Widget"
		object["spec"] = map[string]any{"color": c.color()}
	}
	return &unstructured.Unstructured{Object: object}
}

func (c *churn) color() string { return colors[c.random.IntN(len(colors))] }

func (c *churn) text() string {
	// The text has characters outside ASCII and characters that HTML escaping changes.
	return fmt.Sprintf("%x <é&\u2028> %s", c.random.Uint64(), strings.Repeat("·", c.random.IntN(200)))
}
