package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// ownKey and foreignKey are the keys of the data that the client and the foreign writer change.
	ownKey     = "own"
	foreignKey = "foreign"
)

// scene has what every client needs.
type scene struct {
	config     *rest.Config
	namespace  string
	iterations int
	// own are the ConfigMaps as the client sees them, and foreign as the foreign writer does.
	own     typedcorev1.ConfigMapInterface
	foreign typedcorev1.ConfigMapInterface
	seen    *seen

	foreignWrites int
	reconciles    int
}

func newScene(kubeconfig, foreign, namespace string, iterations int) (*scene, error) {
	config, own, err := connect(kubeconfig, namespace)
	if err != nil {
		return nil, err
	}
	_, direct, err := connect(foreign, namespace)
	if err != nil {
		return nil, err
	}
	return &scene{
		config:     config,
		namespace:  namespace,
		iterations: iterations,
		own:        own,
		foreign:    direct,
		seen:       newSeen(),
	}, nil
}

func connect(kubeconfig, namespace string) (*rest.Config, typedcorev1.ConfigMapInterface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, nil, err
	}
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, nil, err
	}
	return config, client.CoreV1().ConfigMaps(namespace), nil
}

// create creates an object as the client, because the client's next read need not show an object of
// the foreign writer.
func (s *scene) create(ctx context.Context, name string) error {
	made, err := s.own.Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Data:       map[string]string{ownKey: "0", foreignKey: "0"},
	}, metav1.CreateOptions{})
	if err == nil {
		s.seen.wrote(name, made.ResourceVersion)
	}
	return err
}

// change is a foreign write. A patch without a version has no conflicts.
func (s *scene) change(ctx context.Context, name string, number int) error {
	patch := fmt.Appendf(nil, `{"data":{%q:"%d"}}`, foreignKey, number)
	_, err := s.foreign.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// report returns what the client did, and the data of all objects, read directly.
func (s *scene) report(ctx context.Context) (any, error) {
	list, err := s.foreign.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	objects := map[string]map[string]string{}
	for _, object := range list.Items {
		objects[object.Name] = object.Data
	}
	return map[string]any{
		"reads":         s.seen.reads,
		"writes":        s.seen.writes,
		"retries":       s.seen.retries,
		"staleReads":    s.seen.staleReads,
		"errors":        s.seen.errors,
		"reconciles":    s.reconciles,
		"foreignWrites": s.foreignWrites,
		"objects":       objects,
	}, nil
}
