package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
)

// runWatchers opens many independent watches, and compares the objects that they have received.
func runWatchers(ctx context.Context, arguments []string) error {
	var connection connectionFlags
	flags := flag.NewFlagSet("informers watchers", flag.ExitOnError)
	connection.register(flags)
	var selectors selectorFlags
	selectors.register(flags)
	resourceName := flags.String("resource", "configmaps", "resource to watch")
	count := flags.Int("count", 200, "number of watches")
	share := flags.Float64("protobuf-share", 0.5, "share of the watches that request protobuf")
	connections := flags.Int("connections", 1, "number of HTTP/2 connections for the watches")
	startTimeout := flags.Duration("start-timeout", time.Minute, "longest time until all watches are accepted")
	_ = flags.Parse(arguments)

	sources, err := parseSources(*resourceName)
	if err != nil {
		return err
	}
	if len(sources) != 1 || *count < 1 || *connections < 1 {
		return errors.New("--resource must name one resource, and --count and --connections must be at least 1")
	}
	config, err := connection.connect(ctx)
	if err != nil {
		return err
	}
	watched := sources[0]
	if watched.client == untyped {
		*share = 0
	}

	group := &watchGroup{label: watched.String(), started: make(chan struct{}, *count)}
	clients, err := group.clients(config, watched, *connections)
	if err != nil {
		return err
	}
	protobufWatches := int(float64(*count)**share + 0.5)
	for index := range *count {
		client := clients[index%len(clients)]
		one := &watcher{
			group:           group,
			client:          client.json,
			format:          jsonFormat,
			resource:        watched.resource,
			namespace:       connection.namespace,
			selectors:       selectors,
			state:           resourceState{},
			resourceVersion: fromTheStart,
		}
		if index < protobufWatches {
			one.client, one.format = client.protobuf, protobufFormat
		}
		group.watchers = append(group.watchers, one)
		go one.run(ctx)
	}

	deadline := time.After(*startTimeout)
	begun := time.Now()
	for accepted := range *count {
		select {
		case <-ctx.Done():
			return errors.New("stopped before all watches were accepted")
		case <-deadline:
			return fmt.Errorf("only %d of %d watches accepted after %v: %v", accepted, *count, *startTimeout, group.happenings.copy().Texts)
		case <-group.started:
		}
	}
	err = writeLine(os.Stdout, map[string]any{
		"synced": true, "watchers": *count, "protobuf": protobufWatches, "milliseconds": time.Since(begun).Milliseconds(),
	})
	if err != nil {
		return err
	}
	// A stream that is quiet has sent all its initial events.
	group.seen.settled = func() {
		for _, one := range group.watchers {
			one.initialEventsAreOver()
		}
	}
	return serve(ctx, &group.seen, answers{
		"dump":   func(context.Context) (any, error) { return group.dump() },
		"errors": func(context.Context) (any, error) { return group.report(), nil },
	})
}

// watchGroup holds all watchers and their common counters.
type watchGroup struct {
	label    string
	watchers []*watcher
	started  chan struct{}
	seen     activity

	happenings   tally
	errorEvents  atomic.Int64
	cleanEnds    atomic.Int64
	brokenEnds   atomic.Int64
	refused      atomic.Int64
	restarts     atomic.Int64
	resumed      atomic.Int64
	bookmarks    atomic.Int64
	inconsistent atomic.Int64
}

type clientPair struct{ json, protobuf rest.Interface }

type distinctState struct {
	Count     int                      `json:"count"`
	Formats   map[string]int           `json:"formats"`
	Resources map[string]resourceState `json:"resources"`
}

// dump groups the watches by the objects that they have; there is one state if all agree.
func (g *watchGroup) dump() (any, error) {
	states := map[string]*distinctState{}
	for _, one := range g.watchers {
		state := one.snapshot()
		identity := identityOf(state)
		if states[identity] == nil {
			states[identity] = &distinctState{Formats: map[string]int{}, Resources: map[string]resourceState{g.label: state}}
		}
		states[identity].Count++
		states[identity].Formats[one.format]++
	}
	distinct := make([]*distinctState, 0, len(states))
	for _, state := range states {
		distinct = append(distinct, state)
	}
	sort.Slice(distinct, func(i, j int) bool { return distinct[i].Count > distinct[j].Count })
	return map[string]any{"watchers": len(g.watchers), "states": distinct}, nil
}

func identityOf(state resourceState) string {
	lines := make([]string, 0, len(state))
	for key, object := range state {
		lines = append(lines, key+" "+object.UID+" "+object.ResourceVersion+" "+object.Hash)
	}
	sort.Strings(lines)
	return strings.Join(lines, "\n")
}

func (g *watchGroup) report() any {
	return map[string]any{
		"events":       g.seen.events.Load(),
		"bookmarks":    g.bookmarks.Load(),
		"errorEvents":  g.errorEvents.Load(),
		"cleanEnds":    g.cleanEnds.Load(),
		"brokenEnds":   g.brokenEnds.Load(),
		"refused":      g.refused.Load(),
		"restarts":     g.restarts.Load(),
		"resumed":      g.resumed.Load(),
		"inconsistent": g.inconsistent.Load(),
		"happenings":   g.happenings.copy().Texts,
	}
}
