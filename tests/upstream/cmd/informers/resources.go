package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

const (
	typed     = "typed"    // a typed client with client-go's default encoding, protobuf
	typedJSON = "json"     // a typed client that requests JSON
	metaOnly  = "metadata" // a metadata client, which requests PartialObjectMetadata
	untyped   = "dynamic"  // a dynamic client, which requests JSON
)

const defaultResources = "pods:typed,configmaps:typed,secrets:typed,deployments:metadata,services:metadata,widgets:dynamic,configmaps:dynamic"

var widgets = schema.GroupVersionResource{Group: "example.kubefan.io", Version: "v1", Resource: "widgets"}

var knownResources = []schema.GroupVersionResource{
	{Version: "v1", Resource: "pods"},
	{Version: "v1", Resource: "configmaps"},
	{Version: "v1", Resource: "secrets"},
	{Group: "apps", Version: "v1", Resource: "deployments"},
	{Version: "v1", Resource: "services"},
	widgets,
}

// source is a resource together with the kind of client that reads it.
type source struct {
	resource schema.GroupVersionResource
	client   string
}

func (s source) String() string { return s.resource.Resource + ":" + s.client }

func resourceNamed(name string) (schema.GroupVersionResource, error) {
	for _, known := range knownResources {
		if known.Resource == name {
			return known, nil
		}
	}
	return schema.GroupVersionResource{}, fmt.Errorf("unknown resource %q", name)
}

func parseSources(text string) ([]source, error) {
	var sources []source
	for item := range strings.SplitSeq(text, ",") {
		name, client, found := strings.Cut(item, ":")
		resource, err := resourceNamed(name)
		if err != nil {
			return nil, err
		}
		if !found {
			client = typed
			if resource == widgets {
				client = untyped
			}
		}
		if !slices.Contains([]string{typed, typedJSON, metaOnly, untyped}, client) {
			return nil, fmt.Errorf("unknown client %q: use typed, json, metadata or dynamic", client)
		}
		if resource == widgets && (client == typed || client == typedJSON) {
			return nil, fmt.Errorf("widgets have no typed client: use metadata or dynamic")
		}
		sources = append(sources, source{resource, client})
	}
	return sources, nil
}

// informer creates an informer of the source's resource with the source's kind of client. tweak
// changes the options of its requests; it may be nil.
func (s source) informer(config *rest.Config, namespace string, tweak func(*metav1.ListOptions)) (cache.SharedIndexInformer, error) {
	switch s.client {
	case metaOnly:
		client, err := metadata.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		factory := metadatainformer.NewFilteredSharedInformerFactory(client, 0, namespace, tweak)
		return factory.ForResource(s.resource).Informer(), nil
	case untyped:
		client, err := dynamic.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(client, 0, namespace, tweak)
		return factory.ForResource(s.resource).Informer(), nil
	default:
		client, err := kubernetes.NewForConfig(s.encoding(config))
		if err != nil {
			return nil, err
		}
		factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace), informers.WithTweakListOptions(tweak))
		informer, err := factory.ForResource(s.resource)
		if err != nil {
			return nil, err
		}
		return informer.Informer(), nil
	}
}

// list reads the source's objects with a LIST, without an informer.
func (s source) list(ctx context.Context, config *rest.Config, namespace string, options metav1.ListOptions) ([]runtime.Object, error) {
	var list runtime.Object
	var err error
	switch s.client {
	case metaOnly:
		client, failed := metadata.NewForConfig(config)
		if failed != nil {
			return nil, failed
		}
		list, err = client.Resource(s.resource).Namespace(namespace).List(ctx, options)
	case untyped:
		client, failed := dynamic.NewForConfig(config)
		if failed != nil {
			return nil, failed
		}
		list, err = client.Resource(s.resource).Namespace(namespace).List(ctx, options)
	default:
		list, err = s.listTyped(ctx, config, namespace, options)
	}
	if err != nil {
		return nil, err
	}
	return meta.ExtractList(list)
}

func (s source) listTyped(ctx context.Context, config *rest.Config, namespace string, options metav1.ListOptions) (runtime.Object, error) {
	client, err := kubernetes.NewForConfig(s.encoding(config))
	if err != nil {
		return nil, err
	}
	switch s.resource.Resource {
	case "pods":
		return client.CoreV1().Pods(namespace).List(ctx, options)
	case "configmaps":
		return client.CoreV1().ConfigMaps(namespace).List(ctx, options)
	case "secrets":
		return client.CoreV1().Secrets(namespace).List(ctx, options)
	case "services":
		return client.CoreV1().Services(namespace).List(ctx, options)
	case "deployments":
		return client.AppsV1().Deployments(namespace).List(ctx, options)
	}
	return nil, fmt.Errorf("no typed list of %s", s.resource.Resource)
}

func (s source) encoding(config *rest.Config) *rest.Config {
	if s.client != typedJSON {
		return config
	}
	config = rest.CopyConfig(config)
	config.ContentType = runtime.ContentTypeJSON
	config.AcceptContentTypes = runtime.ContentTypeJSON
	return config
}
