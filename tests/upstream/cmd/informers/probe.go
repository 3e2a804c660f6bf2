package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	typedcore "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

const (
	probeName = "probe"
	probeKey  = "sequence"
	// An operation that still fails after this time has failed for good.
	probePatience = 30 * time.Second
	probeRetry    = 100 * time.Millisecond
)

// runProbe acts as an ordinary client and measures how long it waits. In a loop it writes a
// ConfigMap, waits until its informer has the write, lists the namespace with the most recent
// version, and gets the object.
func runProbe(ctx context.Context, arguments []string) error {
	var connection connectionFlags
	flags := flag.NewFlagSet("informers probe", flag.ExitOnError)
	connection.register(flags)
	interval := flags.Duration("interval", 50*time.Millisecond, "pause between two rounds")
	_ = flags.Parse(arguments)
	if connection.namespace == "" {
		return errors.New("--namespace is required")
	}
	config, err := connection.connect(ctx)
	if err != nil {
		return err
	}
	probe, err := newProbe(config, connection.namespace)
	if err != nil {
		return err
	}
	if err := probe.start(ctx); err != nil {
		return err
	}
	if err := writeLine(os.Stdout, map[string]any{"synced": true}); err != nil {
		return err
	}
	go probe.run(ctx, *interval)
	return serve(ctx, &activity{}, answers{
		"report": func(context.Context) (any, error) { return probe.report(), nil },
	})
}

type probe struct {
	maps     typedcore.ConfigMapInterface
	informer cache.SharedIndexInformer
	// arrived gets the sequence number of each write that the informer receives.
	arrived     chan int
	sequence    int
	watchErrors tally

	mutex    sync.Mutex
	waits    map[string][]time.Duration
	failures tally
}

func newProbe(config *rest.Config, namespace string) (*probe, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	only := informers.WithTweakListOptions(func(options *metav1.ListOptions) {
		options.FieldSelector = "metadata.name=" + probeName
	})
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace), only)
	probe := &probe{
		maps:     client.CoreV1().ConfigMaps(namespace),
		informer: factory.Core().V1().ConfigMaps().Informer(),
		arrived:  make(chan int, 1024),
		waits:    map[string][]time.Duration{},
	}
	err = probe.informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		probe.watchErrors.add(reason(err))
	})
	if err != nil {
		return nil, err
	}
	received := func(object any) { probe.arrived <- sequenceOf(object.(*corev1.ConfigMap)) }
	_, err = probe.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    received,
		UpdateFunc: func(_, object any) { received(object) },
	})
	return probe, err
}

func sequenceOf(object *corev1.ConfigMap) int {
	// An object without a number, from before the first write, counts as 0.
	number, _ := strconv.Atoi(object.Data[probeKey])
	return number
}

func (p *probe) start(ctx context.Context) error {
	_, err := p.maps.Create(ctx, p.object(), metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	go p.informer.RunWithContext(ctx)
	limited, cancel := context.WithTimeout(ctx, probePatience)
	defer cancel()
	if !cache.WaitForCacheSync(limited.Done(), p.informer.HasSynced) {
		return fmt.Errorf("the informer has not synced within %v: %v", probePatience, p.watchErrors.copy().Texts)
	}
	return nil
}

func (p *probe) object() *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: probeName},
		Data:       map[string]string{probeKey: strconv.Itoa(p.sequence)},
	}
}

func (p *probe) run(ctx context.Context, interval time.Duration) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for ctx.Err() == nil {
		p.round(ctx)
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

func (p *probe) round(ctx context.Context) {
	p.sequence++
	p.measure(ctx, "write", func(ctx context.Context) error {
		_, err := p.maps.Update(ctx, p.object(), metav1.UpdateOptions{})
		return err
	})
	p.measure(ctx, "event", p.receive)
	p.measure(ctx, "list", func(ctx context.Context) error {
		list, err := p.maps.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, object := range list.Items {
			if object.Name == probeName && sequenceOf(&object) == p.sequence {
				return nil
			}
		}
		p.failures.add("a list without the last write")
		return nil
	})
	p.measure(ctx, "get", func(ctx context.Context) error {
		object, err := p.maps.Get(ctx, probeName, metav1.GetOptions{})
		if err == nil && sequenceOf(object) != p.sequence {
			p.failures.add("an object without the last write")
		}
		return err
	})
}

// receive waits until the informer has the last write.
func (p *probe) receive(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return errors.New("no event of the last write")
		case number := <-p.arrived:
			if number >= p.sequence {
				return nil
			}
		}
	}
}

// measure repeats an operation until it succeeds, and records how long that took.
func (p *probe) measure(ctx context.Context, name string, operation func(context.Context) error) {
	limited, cancel := context.WithTimeout(ctx, probePatience)
	defer cancel()
	started := time.Now()
	for {
		err := operation(limited)
		if err == nil {
			break
		}
		select {
		case <-limited.Done():
			if ctx.Err() == nil {
				p.failures.add(name + ": " + reason(err))
			}
			return
		case <-time.After(probeRetry):
		}
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.waits[name] = append(p.waits[name], time.Since(started))
}

type probeWait struct {
	Count int     `json:"count"`
	P50   float64 `json:"p50Milliseconds"`
	P99   float64 `json:"p99Milliseconds"`
	Most  float64 `json:"mostMilliseconds"`
}

// report returns the waits since the last report, and all failures.
func (p *probe) report() any {
	p.mutex.Lock()
	waits := p.waits
	p.waits = map[string][]time.Duration{}
	p.mutex.Unlock()
	summary := map[string]probeWait{}
	for name, each := range waits {
		slices.Sort(each)
		at := func(part float64) float64 {
			return float64(each[int(part*float64(len(each)-1))].Microseconds()) / 1000
		}
		summary[name] = probeWait{Count: len(each), P50: at(0.5), P99: at(0.99), Most: at(1)}
	}
	return map[string]any{
		"waits":       summary,
		"failures":    p.failures.copy(),
		"watchErrors": p.watchErrors.copy(),
	}
}
