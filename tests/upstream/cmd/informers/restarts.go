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

// runRestarts starts informers repeatedly. Each starts with a watch list, and client-go's
// inconsistency detector compares its objects with a LIST at exactly the same version. The detector
// panics if they differ, which ends this process.
func runRestarts(ctx context.Context, arguments []string) error {
	var connection connectionFlags
	flags := flag.NewFlagSet("informers restarts", flag.ExitOnError)
	connection.register(flags)
	resources := flags.String("resources", defaultResources, "RESOURCE:CLIENT,… where CLIENT is typed, json, metadata or dynamic")
	duration := flags.Duration("duration", 10*time.Second, "time during which informers are started")
	version := flags.String("version", "", `resource version of the watch lists: "" for the most recent state, 0 for any`)
	syncTimeout := flags.Duration("sync-timeout", time.Minute, "longest time until an informer has synced")
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

// isComparison is true for the LISTs of the detector, the only requests for an exact version.
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
	// The reflector runs the detector before it fills the store, so a synced informer was compared.
	r.starts.add(source.String())
	return nil
}
