package main

import (
	"io"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// interruptions measures how long a client has no open watch, after its first one.
type interruptions struct {
	mutex   sync.Mutex
	open    int
	ended   time.Time
	count   int
	longest time.Duration
}

// observe returns a copy of config whose watches are measured.
func (i *interruptions) observe(config *rest.Config) *rest.Config {
	observed := rest.CopyConfig(config)
	observed.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(r)
			if err == nil && response.StatusCode == http.StatusOK && r.URL.Query().Get("watch") == "true" {
				i.began()
				response.Body = &watchBody{ReadCloser: response.Body, ended: sync.OnceFunc(i.end)}
			}
			return response, err
		})
	})
	return observed
}

func (i *interruptions) began() {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	i.open++
	if i.open == 1 && !i.ended.IsZero() {
		i.count++
		i.longest = max(i.longest, time.Since(i.ended))
	}
}

func (i *interruptions) end() {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	i.open--
	if i.open == 0 {
		i.ended = time.Now()
	}
}

// report returns the number of interruptions and the longest one. The current one, if there is one,
// counts too.
func (i *interruptions) report() (int, time.Duration) {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	if i.open == 0 && !i.ended.IsZero() {
		return i.count + 1, max(i.longest, time.Since(i.ended))
	}
	return i.count, i.longest
}

// watchBody calls ended when the stream ends or is closed.
type watchBody struct {
	io.ReadCloser
	ended func()
}

func (b *watchBody) Read(into []byte) (int, error) {
	count, err := b.ReadCloser.Read(into)
	if err != nil {
		b.ended()
	}
	return count, err
}

func (b *watchBody) Close() error {
	b.ended()
	return b.ReadCloser.Close()
}
