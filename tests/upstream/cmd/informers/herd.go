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

// syncPoll is shorter than the 100 ms of client-go's own polling, which would dominate the
// measurement.
const syncPoll = 5 * time.Millisecond

// runHerd starts many informers of one resource at the same time, each with client-go's defaults
// and with separate connections, like informers in separate processes.
func runHerd(ctx context.Context, arguments []string) error {
	var connection connectionFlags
	flags := flag.NewFlagSet("informers herd", flag.ExitOnError)
	connection.register(flags)
	resource := flags.String("resource", "configmaps", "RESOURCE:CLIENT, as for run")
	count := flags.Int("count", 500, "number of informers")
	stay := flags.Bool("stay", false, "run on, and answer settle, report and quit")
	syncTimeout := flags.Duration("sync-timeout", time.Minute, "longest time until all informers have synced")
	_ = flags.Parse(arguments)

	sources, err := parseSources(*resource)
	if err != nil {
		return err
	}
	if len(sources) != 1 || *count < 1 {
		return errors.New("--resource must name one resource, and --count must be at least 1")
	}
	config, err := connection.connect(ctx)
	if err != nil {
		return err
	}
	herd := &herd{source: sources[0], requests: newRequestLog(), watchErrors: &tally{}, seen: &activity{}}
	for range *count {
		if err := herd.add(config, connection.namespace); err != nil {
			return err
		}
	}
	defer herd.running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	took, err := herd.start(ctx, *syncTimeout)
	if err != nil {
		return err
	}
	slices.Sort(took)
	err = writeLine(os.Stdout, map[string]any{
		"informers":          len(took),
		"objects":            herd.objects(),
		"medianMilliseconds": took[len(took)/2].Milliseconds(),
		"lastMilliseconds":   took[len(took)-1].Milliseconds(),
		"requests":           herd.requests.countsCopy()[herd.source.String()],
		"watchErrors":        herd.watchErrors.copy(),
	})
	if err != nil || !*stay {
		return err
	}
	return serve(ctx, herd.seen, answers{
		"report": func(context.Context) (any, error) { return herd.report(), nil },
	})
}

type herd struct {
	source      source
	requests    *requestLog
	watchErrors *tally
	seen        *activity
	informers   []cache.SharedIndexInformer
	running     sync.WaitGroup
	// Of each informer.
	interruptions []*interruptions
	sequences     []*sequence
}

// add creates an informer that shares no connection with another one.
func (h *herd) add(config *rest.Config, namespace string) error {
	watches, events := &interruptions{}, newSequence()
	own := watches.observe(h.requests.observe(config, h.source.String()))
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
	if _, err := informer.AddEventHandler(events.handler(h.seen)); err != nil {
		return err
	}
	h.informers = append(h.informers, informer)
	h.interruptions = append(h.interruptions, watches)
	h.sequences = append(h.sequences, events)
	return nil
}

// start runs all informers until the context ends, and returns the time that each needed to sync.
func (h *herd) start(ctx context.Context, limit time.Duration) ([]time.Duration, error) {
	took := make([]time.Duration, len(h.informers))
	missing := make([]bool, len(h.informers))
	var waiting sync.WaitGroup

	began := time.Now()
	for _, informer := range h.informers {
		h.running.Go(func() { informer.RunWithContext(ctx) })
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

// objects returns the distinct numbers of objects that informers have: one number if all agree.
func (h *herd) objects() []int {
	var counts []int
	for _, informer := range h.informers {
		counts = append(counts, len(informer.GetStore().ListKeys()))
	}
	slices.Sort(counts)
	return slices.Compact(counts)
}

// report compares the events of all informers, and measures how long they had no watch.
func (h *herd) report() any {
	sequences := map[sequenceIdentity]int{}
	for _, one := range h.sequences {
		sequences[one.identity()]++
	}
	type counted struct {
		sequenceIdentity
		Informers int `json:"informers"`
	}
	var distinct []counted
	for identity, count := range sequences {
		distinct = append(distinct, counted{identity, count})
	}
	slices.SortFunc(distinct, func(a, b counted) int { return b.Informers - a.Informers })
	interrupted := 0
	var longest []int64
	for _, one := range h.interruptions {
		count, own := one.report()
		interrupted += count
		longest = append(longest, own.Milliseconds())
	}
	slices.Sort(longest)
	return map[string]any{
		"sequences":     distinct,
		"interruptions": interrupted,
		// The longest interruptions of the informers.
		"medianMilliseconds": longest[len(longest)/2],
		"p99Milliseconds":    longest[len(longest)*99/100],
		"mostMilliseconds":   longest[len(longest)-1],
		"objects":            h.objects(),
		"requests":           h.requests.countsCopy()[h.source.String()],
		"watchErrors":        h.watchErrors.copy(),
	}
}
