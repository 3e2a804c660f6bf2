package main

import (
	"context"
	"errors"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
)

const (
	counter = "counter"
	// pace is the time between the beginnings of two iterations, unless one takes longer. So runs
	// of equally many iterations have about equally many foreign writes.
	pace = 20 * time.Millisecond
)

// patience is client-go's retry.DefaultRetry, which gives up after five attempts, with more of them.
var patience = wait.Backoff{Steps: 500, Duration: 10 * time.Millisecond, Factor: 1, Jitter: 0.1}

// retryOnConflict counts an object up, whose other key the foreign writer changes.
func retryOnConflict(ctx context.Context, s *scene) error {
	if err := s.create(ctx, counter); err != nil {
		return err
	}
	foreign := startForeignWriter(0, func(number int) error { return s.change(ctx, counter, number) })
	err := s.atPace(func(int) error {
		return retry.RetryOnConflict(patience, func() error { return s.countUp(ctx) })
	})
	err = errors.Join(err, foreign.stop())
	s.foreignWrites = foreign.writes
	return err
}

// atPace calls iterate for each iteration, until one fails.
func (s *scene) atPace(iterate func(iteration int) error) error {
	ticker := time.NewTicker(pace)
	defer ticker.Stop()
	for iteration := range s.iterations {
		<-ticker.C
		if err := iterate(iteration); err != nil {
			return err
		}
	}
	return nil
}

func (s *scene) countUp(ctx context.Context) error {
	found, err := s.own.Get(ctx, counter, metav1.GetOptions{})
	if err != nil {
		return err
	}
	s.seen.read(counter, found.ResourceVersion)
	count, err := strconv.Atoi(found.Data[ownKey])
	if err != nil {
		return err
	}
	found.Data[ownKey] = strconv.Itoa(count + 1)
	written, err := s.own.Update(ctx, found, metav1.UpdateOptions{})
	if err != nil {
		return s.seen.updated(counter, "", err)
	}
	return s.seen.updated(counter, written.ResourceVersion, nil)
}
