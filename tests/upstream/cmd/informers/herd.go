package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// syncPoll is finer than client-go's own 100 ms, which would be all that is measured.
const syncPoll = 5 * time.Millisecond

// runHerd starts many informers of one resource at the same moment, each with
// client-go's defaults and connections of its own, as so many processes have.
func runHerd(ctx context.Context, arguments []string) error {
	var connection connectionFlags
	flags := flag.NewFlagSet("informers herd", flag.ExitOnError)
	connection.register(flags)
	resource := flags.String("resource", "configmaps", "RESOURCE:CLIENT, as of run")
	count := flags.Int("count", 500, "how many informers")
	syncTimeout := flags.Duration("sync-timeout", time.Minute, "how long all informers may take to sync")
	_ = flags.Parse(arguments)

	sources, err := parseSources(*resource)
	if err != nil {
		return err
	}
	if len(sources) != 1 || *count < 1 {
		return errors.New("--resource names one resource, --count is at least 1")
	}
	config, err := connection.connect(ctx)
	if err != nil {
		return err
	}
	herd := &herd{source: sources[0], requests: newRequestLog(), watchErrors: &tally{}}
	for range *count {
		if err := herd.add(config, connection.namespace); err != nil {
			return err
		}
	}
	took, err := herd.start(ctx, *syncTimeout)
	if err != nil {
		return err
	}
	slices.Sort(took)
	return writeLine(os.Stdout, map[string]any{
		"informers":          len(took),
		"objects":            herd.objects(),
		"medianMilliseconds": took[len(took)/2].Milliseconds(),
		"lastMilliseconds":   took[len(took)-1].Milliseconds(),
		"requests":           herd.requests.countsCopy()[herd.source.String()],
		"watchErrors":        herd.watchErrors.copy(),
	})
}

type herd struct {
	source      source
	requests    *requestLog
	watchErrors *tally
	informers   []cache.SharedIndexInformer
}

// add makes an informer whose connections no other one uses.
func (h *herd) add(config *rest.Config, namespace string) error {
	own := h.requests.observe(config, h.source.String())
	// client-go shares transports between configurations that have the same dialer.
	own.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		return newDialer()(ctx, network, address)
	}
	informer, err := h.source.informer(own, namespace, nil)
	if err != nil {
		return err
	}
	err = informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		h.watchErrors.add(reason(err))
	})
	if err != nil {
		return err
	}
	h.informers = append(h.informers, informer)
	return nil
}

// start gives how long each informer took to sync.
func (h *herd) start(ctx context.Context, limit time.Duration) ([]time.Duration, error) {
	running, cancel := context.WithCancel(ctx)
	took := make([]time.Duration, len(h.informers))
	missing := make([]bool, len(h.informers))
	var informers, waiting sync.WaitGroup
	defer informers.Wait()
	defer cancel()

	began := time.Now()
	for _, informer := range h.informers {
		informers.Go(func() { informer.RunWithContext(running) })
	}
	for index, informer := range h.informers {
		waiting.Go(func() {
			for !informer.HasSynced() {
				if time.Since(began) > limit || ctx.Err() != nil {
					missing[index] = true
					return
				}
				time.Sleep(syncPoll)
			}
			took[index] = time.Since(began)
		})
	}
	waiting.Wait()
	unsynced := 0
	for _, one := range missing {
		if one {
			unsynced++
		}
	}
	if unsynced > 0 {
		return nil, fmt.Errorf("%d of %d not synced after %v; watch errors: %v", unsynced, len(took), limit, h.watchErrors.copy().Texts)
	}
	return took, nil
}

// objects gives how many objects each informer holds, all the same.
func (h *herd) objects() []int {
	var counts []int
	for _, informer := range h.informers {
		counts = append(counts, len(informer.GetStore().ListKeys()))
	}
	slices.Sort(counts)
	return slices.Compact(counts)
}
