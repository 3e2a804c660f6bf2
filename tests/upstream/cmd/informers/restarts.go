package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/consistencydetector"
)

// runRestarts starts informers again and again. Each begins with a watch-list, and
// client-go's detector compares what that brought with a LIST at exactly its version:
// a difference is a panic, which ends this process.
func runRestarts(ctx context.Context, arguments []string) error {
	var connection connectionFlags
	flags := flag.NewFlagSet("informers restarts", flag.ExitOnError)
	connection.register(flags)
	resources := flags.String("resources", defaultResources, "RESOURCE:CLIENT,… where CLIENT is typed, json, metadata or dynamic")
	duration := flags.Duration("duration", 10*time.Second, "how long to start informers")
	version := flags.String("version", "", `resource version that watch-lists ask for: "" is most recent, 0 any`)
	syncTimeout := flags.Duration("sync-timeout", time.Minute, "how long an informer may take to sync")
	_ = flags.Parse(arguments)

	if !consistencydetector.IsDataConsistencyDetectionForWatchListEnabled() {
		return errors.New("the detector is off: set KUBE_WATCHLIST_INCONSISTENCY_DETECTOR=true")
	}
	_ = os.Setenv(watchListGate, "true")
	sources, err := parseSources(*resources)
	if err != nil {
		return err
	}
	config, err := connection.connect(ctx)
	if err != nil {
		return err
	}
	run := &restarts{requests: newRequestLog(), until: time.Now().Add(*duration), limit: *syncTimeout}
	run.requests.selects = isComparison
	fromVersion := func(options *metav1.ListOptions) {
		if options.SendInitialEvents != nil && options.ResourceVersion == "" {
			options.ResourceVersion = *version
		}
	}
	faults := make([]error, len(sources))
	var group sync.WaitGroup
	for index, source := range sources {
		group.Go(func() {
			faults[index] = run.repeat(ctx, source, run.requests.observe(config, source.String()), connection.namespace, fromVersion)
		})
	}
	group.Wait()
	if err := errors.Join(faults...); err != nil {
		return err
	}
	return writeLine(os.Stdout, map[string]any{
		"starts":      run.starts.copy().Texts,
		"comparisons": run.requests.selectedCopy(),
		"watchErrors": run.watchErrors.copy(),
		"requests":    run.requests.countsCopy(),
	})
}

// isComparison tells the detector's LISTs from all other requests.
func isComparison(query url.Values) bool {
	return query.Get("resourceVersionMatch") == string(metav1.ResourceVersionMatchExact)
}

type restarts struct {
	requests    *requestLog
	starts      tally
	watchErrors tally
	until       time.Time
	limit       time.Duration
}

func (r *restarts) repeat(ctx context.Context, source source, config *rest.Config, namespace string, tweak func(*metav1.ListOptions)) error {
	for ctx.Err() == nil && time.Now().Before(r.until) {
		informer, err := source.informer(config, namespace, tweak)
		if err != nil {
			return err
		}
		if err := r.start(ctx, source, informer); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (r *restarts) start(ctx context.Context, source source, informer cache.SharedIndexInformer) error {
	limited, cancel := context.WithTimeout(ctx, r.limit)
	err := informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		if limited.Err() == nil {
			r.watchErrors.add(source.String() + ": " + reason(err))
		}
	})
	if err != nil {
		cancel()
		return err
	}
	var running sync.WaitGroup
	running.Go(func() { informer.RunWithContext(limited) })
	synced := cache.WaitForCacheSync(limited.Done(), informer.HasSynced)
	cancel()
	running.Wait()
	if !synced {
		return fmt.Errorf("%s: not synced in %v: %v", source, r.limit, r.watchErrors.copy().Texts)
	}
	// The reflector compares before it hands anything to the store.
	r.starts.add(source.String())
	return nil
}
