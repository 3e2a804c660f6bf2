package main

import (
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"k8s.io/client-go/rest"
)

const keptRequests = 2000

type request struct {
	Source string `json:"source"`
	Method string `json:"method"`
	URL    string `json:"url"`
	Accept string `json:"accept"`
	Status int    `json:"status,omitempty"`
	Error  string `json:"error,omitempty"`
}

type requestCounts struct {
	Lists   int `json:"lists"`
	Watches int `json:"watches"`
	// WatchLists counts the watches that ask for initial events. They are counted in Watches too.
	WatchLists int `json:"watchLists"`
	Failed     int `json:"failed"`
}

// requestLog records and counts the HTTP requests of client-go.
type requestLog struct {
	mutex  sync.Mutex
	counts map[string]*requestCounts
	kept   []request
	// selects chooses requests by their query; selected counts those that succeed. It may be nil.
	selects  func(url.Values) bool
	selected map[string]int
}

func newRequestLog() *requestLog {
	return &requestLog{counts: map[string]*requestCounts{}, selected: map[string]int{}}
}

// observe returns a copy of config for a client whose requests are counted under source.
func (l *requestLog) observe(config *rest.Config, source string) *rest.Config {
	observed := rest.CopyConfig(config)
	observed.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(r)
			l.add(source, r, response, err)
			return response, err
		})
	})
	return observed
}

func (l *requestLog) add(source string, r *http.Request, response *http.Response, err error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	counts := l.counts[source]
	if counts == nil {
		counts = &requestCounts{}
		l.counts[source] = counts
	}
	query := r.URL.Query()
	switch {
	case query.Get("watch") == "true":
		counts.Watches++
		if query.Get("sendInitialEvents") == "true" {
			counts.WatchLists++
		}
	case r.Method == http.MethodGet:
		counts.Lists++
	}
	if l.selects != nil && l.selects(query) && err == nil && response.StatusCode == http.StatusOK {
		l.selected[source]++
	}
	entry := request{Source: source, Method: r.Method, URL: r.URL.RequestURI(), Accept: strings.Join(r.Header.Values("Accept"), ",")}
	if err != nil {
		entry.Error = err.Error()
	} else {
		entry.Status = response.StatusCode
	}
	if err != nil || response.StatusCode >= 400 {
		counts.Failed++
	}
	if len(l.kept) < keptRequests {
		l.kept = append(l.kept, entry)
	}
}

func (l *requestLog) countsCopy() map[string]requestCounts {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	counts := make(map[string]requestCounts, len(l.counts))
	for source, count := range l.counts {
		counts[source] = *count
	}
	return counts
}

func (l *requestLog) selectedCopy() map[string]int {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return maps.Clone(l.selected)
}

func (l *requestLog) requestsCopy() []request {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return append([]request{}, l.kept...)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
