package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
)

const (
	shared = "shared"
	// iterationsPerDelete is 3, so the client deletes the object in each third iteration.
	iterationsPerDelete = 3
)

// creator makes sure that an object exists, which the foreign writer creates and deletes in turn.
type creator struct {
	*scene
	// begun and ended count the foreign deletes.
	begun, ended atomic.Int64
}

// createOrGet creates the object or gets the existing one, and often deletes it.
func createOrGet(ctx context.Context, s *scene) error {
	c := &creator{scene: s}
	foreign := startForeignWriter(0, func(number int) error { return c.toggle(ctx, number) })
	err := s.atPace(func(iteration int) error {
		object, err := c.ensurePatiently(ctx)
		if err != nil || iteration%iterationsPerDelete != 0 {
			return err
		}
		return c.delete(ctx, object)
	})
	err = errors.Join(err, foreign.stop())
	s.foreignWrites = foreign.writes
	if err != nil {
		return err
	}
	return c.finish(ctx)
}

// toggle is a foreign write.
func (c *creator) toggle(ctx context.Context, number int) error {
	if number%2 == 1 {
		_, err := c.foreign.Create(ctx, newShared(), metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	}
	c.begun.Add(1)
	defer c.ended.Add(1)
	err := c.foreign.Delete(ctx, shared, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func newShared() *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: shared},
		Data:       map[string]string{"state": "present"},
	}
}

// ensurePatiently starts again if the object that existed is gone when it is read.
func (c *creator) ensurePatiently(ctx context.Context) (*corev1.ConfigMap, error) {
	var object *corev1.ConfigMap
	err := retry.OnError(patience, apierrors.IsNotFound, func() error {
		var err error
		object, err = c.ensure(ctx)
		return err
	})
	return object, err
}

func (c *creator) ensure(ctx context.Context) (*corev1.ConfigMap, error) {
	ended := c.ended.Load()
	made, err := c.own.Create(ctx, newShared(), metav1.CreateOptions{})
	if err == nil {
		c.seen.wrote(shared, made.ResourceVersion)
		return made, nil
	}
	if !apierrors.IsAlreadyExists(err) {
		// Not wrapped, because the object is not what was not found.
		return nil, fmt.Errorf("creating %s: %v", shared, err)
	}
	found, err := c.own.Get(ctx, shared, metav1.GetOptions{})
	switch {
	case err == nil:
		c.seen.read(shared, found.ResourceVersion)
	case apierrors.IsNotFound(err):
		// The object existed after the Create was sent. So a delete that ended before did not
		// remove it.
		c.seen.missed(shared, c.begun.Load() > ended)
	}
	return found, err
}

// delete deletes the object, unless the foreign writer was faster.
func (c *creator) delete(ctx context.Context, object *corev1.ConfigMap) error {
	preconditions := metav1.NewUIDPreconditions(string(object.UID))
	err := c.own.Delete(ctx, shared, metav1.DeleteOptions{Preconditions: preconditions})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return err
	}
	c.seen.outdated(shared)
	return nil
}

// finish makes sure that the object exists, and that the client has the one that does. The foreign
// writer has stopped.
func (c *creator) finish(ctx context.Context) error {
	object, err := c.ensurePatiently(ctx)
	if err != nil {
		return err
	}
	actual, err := c.foreign.Get(ctx, shared, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if object.UID != actual.UID || object.ResourceVersion != actual.ResourceVersion {
		c.seen.failed(fmt.Errorf("%s is %s, not %s", shared, actual.UID, object.UID))
	}
	return nil
}
