package main

import (
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
)

// sentAnnotation is the time at which an object was written, in milliseconds since 1970.
const sentAnnotation = "kubefan.test/sent"

// delays measures how late the events of objects that have this annotation arrive.
type delays struct {
	mutex sync.Mutex
	// begun is the time from which on writes count; zero before.
	begun   time.Time
	longest time.Duration
}

func (d *delays) begin() {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.begun = time.Now()
}

// seen records that an object arrived that was added or changed.
func (d *delays) seen(object any) {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return
	}
	milliseconds, err := strconv.ParseInt(accessor.GetAnnotations()[sentAnnotation], 10, 64)
	if err != nil {
		return
	}
	sent := time.UnixMilli(milliseconds)
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if !d.begun.IsZero() && sent.After(d.begun) {
		d.longest = max(d.longest, time.Since(sent))
	}
}

// reportService has the longest time for which an informer had no watch, the longest delay of an event,
// and how often each informer had no watch.
func reportService(running []*runningInformer, late *delays) any {
	interrupted := map[string]int{}
	var outage time.Duration
	for _, one := range running {
		count, longest := one.watches.report()
		outage = max(outage, longest)
		if count > 0 {
			interrupted[one.name] = count
		}
	}
	late.mutex.Lock()
	defer late.mutex.Unlock()
	return map[string]any{
		"longestOutageMilliseconds": outage.Milliseconds(),
		"longestDelayMilliseconds":  late.longest.Milliseconds(),
		"interruptions":             interrupted,
	}
}
