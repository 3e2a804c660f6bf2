package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

const watchListGate = "KUBE_FEATURE_WatchListClient"

type runningInformer struct {
	name     string
	informer cache.SharedIndexInformer
	handler  cache.ResourceEventHandlerRegistration
	events   tally
	watches  *interruptions
}

func runInformers(ctx context.Context, arguments []string) error {
	var connection connectionFlags
	flags := flag.NewFlagSet("informers", flag.ExitOnError)
	connection.register(flags)
	mode := flags.String("mode", "watchlist", "how informers start: rv0 (LIST at resourceVersion=0) or watchlist")
	resources := flags.String("resources", defaultResources, "RESOURCE:CLIENT,… where CLIENT is typed, json, metadata or dynamic")
	copies := flags.Int("copies", 1, "number of informers of each resource and selection")
	var selections []string
	flags.Func("selection", "labelSelector, fieldSelector and shardSelector as in a URL's query; may be repeated; everything if absent", func(query string) error {
		selections = append(selections, query)
		_, err := tweakFor(query)
		return err
	})
	syncTimeout := flags.Duration("sync-timeout", time.Minute, "longest time until all informers have synced")
	_ = flags.Parse(arguments)
	if len(selections) == 0 {
		selections = []string{""}
	}

	// client-go reads this feature gate from the environment when it is first used.
	switch *mode {
	case "rv0":
		_ = os.Setenv(watchListGate, "false")
	case "watchlist":
		_ = os.Setenv(watchListGate, "true")
	default:
		return fmt.Errorf("unknown mode %q: use rv0 or watchlist", *mode)
	}
	sources, err := parseSources(*resources)
	if err != nil {
		return err
	}
	config, err := connection.connect(ctx)
	if err != nil {
		return err
	}

	requests := newRequestLog()
	watchErrors := &tally{}
	seen := &activity{}
	late := &delays{}
	var running []*runningInformer
	for _, source := range sources {
		for _, selection := range selections {
			tweak, err := tweakFor(selection)
			if err != nil {
				return err
			}
			for number := range *copies {
				name := nameOf(source, selection, number)
				watches := &interruptions{}
				informer, err := source.informer(watches.observe(requests.observe(config, name)), connection.namespace, tweak)
				if err != nil {
					return err
				}
				one := &runningInformer{name: name, informer: informer, watches: watches}
				if err := one.observe(seen, watchErrors, late); err != nil {
					return err
				}
				running = append(running, one)
				go informer.RunWithContext(ctx)
			}
		}
	}

	started := time.Now()
	if err := waitForSync(ctx, running, *syncTimeout, watchErrors); err != nil {
		return err
	}
	late.begin()
	if err := writeLine(os.Stdout, map[string]any{"synced": true, "mode": *mode, "milliseconds": time.Since(started).Milliseconds()}); err != nil {
		return err
	}
	return serve(ctx, seen, answers{
		"dump":     func(context.Context) (any, error) { return dumpInformers(running) },
		"errors":   func(context.Context) (any, error) { return reportInformers(running, watchErrors, requests), nil },
		"requests": func(context.Context) (any, error) { return map[string]any{"requests": requests.requestsCopy()}, nil },
		"service":  func(context.Context) (any, error) { return reportService(running, late), nil },
	})
}

// nameOf returns RESOURCE:CLIENT, with ?SELECTION unless it is empty, and with #NUMBER unless it is 0.
func nameOf(source source, selection string, number int) string {
	name := source.String()
	if selection != "" {
		name += "?" + selection
	}
	if number > 0 {
		name += fmt.Sprintf("#%d", number)
	}
	return name
}

// tweakFor returns a function that sets the selectors of a URL's query.
func tweakFor(query string) (func(*metav1.ListOptions), error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, err
	}
	return func(options *metav1.ListOptions) {
		options.LabelSelector = values.Get("labelSelector")
		options.FieldSelector = values.Get("fieldSelector")
		options.ShardSelector = values.Get("shardSelector")
	}, nil
}

func (r *runningInformer) observe(seen *activity, watchErrors *tally, late *delays) error {
	err := r.informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		watchErrors.add(r.name + ": " + reason(err))
	})
	if err != nil {
		return err
	}
	r.handler, err = r.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { late.seen(object); seen.seen(); r.events.add("added") },
		UpdateFunc: func(_, object any) { late.seen(object); seen.seen(); r.events.add("updated") },
		DeleteFunc: func(any) { seen.seen(); r.events.add("deleted") },
	})
	return err
}

func waitForSync(ctx context.Context, running []*runningInformer, limit time.Duration, watchErrors *tally) error {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var missing []string
	for _, one := range running {
		if !cache.WaitForCacheSync(limited.Done(), one.handler.HasSynced) {
			missing = append(missing, one.name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	if ctx.Err() != nil {
		return errors.New("stopped before all informers had synced")
	}
	return fmt.Errorf("not synced after %v: %s; watch errors: %v", limit, strings.Join(missing, ", "), watchErrors.copy().Texts)
}

func dumpInformers(running []*runningInformer) (any, error) {
	result := dump{Resources: map[string]resourceState{}}
	for _, one := range running {
		var objects []runtime.Object
		for _, object := range one.informer.GetStore().List() {
			objects = append(objects, object.(runtime.Object))
		}
		state, err := stateOf(objects)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", one.name, err)
		}
		result.Resources[one.name] = state
	}
	return result, nil
}

func reportInformers(running []*runningInformer, watchErrors *tally, requests *requestLog) any {
	events := map[string]map[string]int{}
	for _, one := range running {
		events[one.name] = one.events.copy().Texts
	}
	return map[string]any{
		"watchErrors": watchErrors.copy(),
		"requests":    requests.countsCopy(),
		"events":      events,
	}
}
