package main

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// copiedKey is the key of the data that is copied.
const copiedKey = "round"

// copier reconciles Secrets with the ConfigMaps of the same names. Only it writes the Secrets, so a
// read that follows its write must return exactly what it wrote.
type copier struct {
	client      client.Client
	requests    *requestLog
	watchErrors *tally
	errors      *tally
	staleReads  *tally

	mutex      sync.Mutex
	written    map[string]secretState
	reconciles int
	writes     int
}

// secretState identifies what a Secret is; the version is empty if it does not exist.
type secretState struct {
	version string
	// isUnknown is true after a write that may or may not have been executed.
	isUnknown bool
}

func newCopier() *copier {
	return &copier{
		requests:    &requestLog{counts: map[string]int{}},
		watchErrors: newTally(),
		errors:      newTally(),
		staleReads:  newTally(),
		written:     map[string]secretState{},
	}
}

// Reconcile makes the Secret equal to the ConfigMap. The controller never runs it concurrently for
// the same name.
func (c *copier) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	err := c.copy(ctx, request.NamespacedName)
	c.mutex.Lock()
	c.reconciles++
	c.mutex.Unlock()
	if err != nil {
		c.errors.add(err.Error())
	}
	return reconcile.Result{}, err
}

func (c *copier) copy(ctx context.Context, key client.ObjectKey) error {
	source, secret := &corev1.ConfigMap{}, &corev1.Secret{}
	sourceError := c.client.Get(ctx, key, source)
	if client.IgnoreNotFound(sourceError) != nil {
		return sourceError
	}
	secretError := c.client.Get(ctx, key, secret)
	if client.IgnoreNotFound(secretError) != nil {
		return secretError
	}
	c.check(key.Name, secret.ResourceVersion)

	wanted := source.Data[copiedKey]
	exists := secretError == nil
	switch {
	case sourceError != nil && exists:
		precondition := client.Preconditions{UID: &secret.UID, ResourceVersion: &secret.ResourceVersion}
		return c.record(key.Name, "", c.client.Delete(ctx, secret, precondition))
	case sourceError == nil && !exists:
		secret = &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
			Data:       map[string][]byte{copiedKey: []byte(wanted)},
		}
		err := c.client.Create(ctx, secret)
		return c.record(key.Name, secret.ResourceVersion, err)
	case sourceError == nil && string(secret.Data[copiedKey]) != wanted:
		secret.Data = map[string][]byte{copiedKey: []byte(wanted)}
		err := c.client.Update(ctx, secret)
		return c.record(key.Name, secret.ResourceVersion, err)
	}
	return nil
}

// check compares the version of a Secret that was read with the last write. Reads before the first
// write, and after a write in doubt, prove nothing.
func (c *copier) check(name, version string) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	last, known := c.written[name]
	if known && !last.isUnknown && last.version != version {
		c.staleReads.add(fmt.Sprintf("%s at %q instead of %q", name, version, last.version))
	}
}

// record remembers the version that a write has made, and returns the error of the write.
func (c *copier) record(name, version string, err error) error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	last := c.written[name]
	switch {
	case err == nil:
		c.writes++
		c.written[name] = secretState{version: version}
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err):
		// The read before this write was stale, unless an earlier write was in doubt.
		if !last.isUnknown {
			c.staleReads.add(fmt.Sprintf("%s: %v", name, err))
		}
	default:
		c.written[name] = secretState{isUnknown: true}
	}
	return err
}

// report returns the counts, and the objects that the manager's cache has.
func (c *copier) report(reader client.Reader, namespace string) (any, error) {
	ctx := context.Background()
	var sources corev1.ConfigMapList
	if err := reader.List(ctx, &sources, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	var secrets corev1.SecretList
	if err := reader.List(ctx, &secrets, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	configMaps, copies := map[string]string{}, map[string]string{}
	for _, source := range sources.Items {
		configMaps[source.Name] = source.Data[copiedKey]
	}
	for _, secret := range secrets.Items {
		copies[secret.Name] = string(secret.Data[copiedKey])
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return map[string]any{
		"reconciles":  c.reconciles,
		"writes":      c.writes,
		"staleReads":  c.staleReads.copy(),
		"errors":      c.errors.copy(),
		"watchErrors": c.watchErrors.copy(),
		"requests":    c.requests.copy(),
		"configMaps":  configMaps,
		"copies":      copies,
	}, nil
}

// tally counts texts.
type tally struct {
	mutex sync.Mutex
	texts map[string]int
}

func newTally() *tally { return &tally{texts: map[string]int{}} }

func (t *tally) add(text string) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.texts[text]++
}

func (t *tally) copy() map[string]int {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return maps.Clone(t.texts)
}

// requestLog counts reads by kind: list, watch, and watchList, which is a watch that begins with
// the current objects.
type requestLog struct {
	mutex  sync.Mutex
	counts map[string]int
}

func (l *requestLog) observe(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		query := r.URL.Query()
		kind := "list"
		switch {
		case r.Method != http.MethodGet:
			kind = "write"
		case query.Get("sendInitialEvents") == "true":
			kind = "watchList"
		case query.Get("watch") == "true":
			kind = "watch"
		}
		l.mutex.Lock()
		l.counts[kind]++
		l.mutex.Unlock()
		return next.RoundTrip(r)
	})
}

func (l *requestLog) copy() map[string]int {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return maps.Clone(l.counts)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
