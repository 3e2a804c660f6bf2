package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

const (
	followed = 4
	// pollInterval is the time between two reconciles of an object: without informers, nothing
	// reports a change.
	pollInterval = 20 * time.Millisecond
)

// follower copies what the foreign writer has written in an object to the client's key.
type follower struct {
	*scene
	client client.Client
	names  []string
	// readsOwnWrites is true if each write is read again. The option
	// EnableReadYourWritesConsistency of controller-runtime would start informers.
	readsOwnWrites bool

	mutex sync.Mutex
	// current has the values of the objects in which both keys were read as equal.
	current map[string]string
	changed chan struct{}
}

// manage follows the foreign writer with a manager of controller-runtime.
func manage(ctx context.Context, s *scene, readsOwnWrites bool) error {
	f := &follower{
		scene:          s,
		readsOwnWrites: readsOwnWrites,
		current:        map[string]string{},
		changed:        make(chan struct{}, 1),
	}
	last := map[string]string{}
	for index := range followed {
		name := fmt.Sprintf("object-%d", index)
		if err := s.create(ctx, name); err != nil {
			return err
		}
		f.names = append(f.names, name)
		last[name] = "0"
	}
	manager, err := f.newManager()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		ended <- manager.Start(ctx)
		cancel()
	}()
	foreign := startForeignWriter(s.iterations, func(number int) error {
		name := f.names[number%followed]
		last[name] = strconv.Itoa(number)
		return s.change(ctx, name, number)
	})
	err = foreign.wait()
	s.foreignWrites = foreign.writes
	if err == nil {
		err = f.settle(ctx, last)
	}
	cancel()
	return errors.Join(err, <-ended)
}

func (f *follower) newManager() (ctrl.Manager, error) {
	ctrl.SetLogger(logr.Discard())
	manager, err := ctrl.NewManager(f.config, ctrl.Options{
		Client: client.Options{
			Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.ConfigMap{}}},
		},
		Metrics: metricsserver.Options{BindAddress: "0"},
	})
	if err != nil {
		return nil, err
	}
	f.client = manager.GetClient()
	return manager, ctrl.NewControllerManagedBy(manager).
		Named("follower").
		WatchesRawSource(source.Func(f.enqueue)).
		WithOptions(controller.Options{MaxConcurrentReconciles: followed}).
		Complete(f)
}

// enqueue requests the first reconcile of each object.
func (f *follower) enqueue(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	for _, name := range f.names {
		queue.Add(reconcile.Request{NamespacedName: client.ObjectKey{Namespace: f.namespace, Name: name}})
	}
	return nil
}

// Reconcile makes both keys of an object equal. The controller never runs it concurrently for the
// same object.
func (f *follower) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	f.mutex.Lock()
	f.reconciles++
	f.mutex.Unlock()
	err := f.follow(ctx, request.NamespacedName)
	if err != nil {
		if !apierrors.IsConflict(err) && ctx.Err() == nil {
			f.seen.failed(err)
		}
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: pollInterval}, nil
}

func (f *follower) follow(ctx context.Context, key client.ObjectKey) error {
	object := &corev1.ConfigMap{}
	if err := f.get(ctx, key, object); err != nil {
		return err
	}
	if object.Data[ownKey] == object.Data[foreignKey] {
		f.isCurrent(key.Name, object.Data[foreignKey])
		return nil
	}
	object.Data[ownKey] = object.Data[foreignKey]
	err := f.client.Update(ctx, object)
	if err := f.seen.updated(key.Name, object.ResourceVersion, err); err != nil || !f.readsOwnWrites {
		return err
	}
	return f.get(ctx, key, &corev1.ConfigMap{})
}

func (f *follower) get(ctx context.Context, key client.ObjectKey, object *corev1.ConfigMap) error {
	err := f.client.Get(ctx, key, object)
	if err == nil {
		f.seen.read(key.Name, object.ResourceVersion)
	}
	return err
}

// isCurrent notes that both keys of the object have this value.
func (f *follower) isCurrent(name, value string) {
	f.mutex.Lock()
	f.current[name] = value
	f.mutex.Unlock()
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// settle waits until the objects have the last values in both keys.
func (f *follower) settle(ctx context.Context, last map[string]string) error {
	for !f.hasReached(last) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-f.changed:
		}
	}
	return nil
}

func (f *follower) hasReached(last map[string]string) bool {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	for name, value := range last {
		if f.current[name] != value {
			return false
		}
	}
	return true
}
