package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

const (
	jsonFormat     = "json"
	protobufFormat = "protobuf"

	retryPause   = 200 * time.Millisecond
	largestFrame = 16 << 20
	fromTheStart = "0"
)

// watcher is one watch. It decodes the frames itself, because client-go's watch does not
// distinguish a stream that ended properly from one that broke.
type watcher struct {
	group     *watchGroup
	client    rest.Interface
	format    string
	resource  schema.GroupVersionResource
	namespace string
	selectors selectorFlags

	mutex           sync.Mutex
	state           resourceState
	resourceVersion string
	// resumable is false while the initial events arrive. They are sorted by name, so a watch that
	// breaks between them has no resourceVersion to resume from.
	resumable bool
	accepted  bool
}

// clients creates pairs of clients. Different pairs share no connection.
func (g *watchGroup) clients(config *rest.Config, watched source, connections int) ([]clientPair, error) {
	var pairs []clientPair
	for range connections {
		base := rest.CopyConfig(config)
		if connections > 1 {
			// With a separate dialer, client-go does not share the transport.
			base.Dial = newDialer()
		}
		var pair clientPair
		var err error
		if pair.json, err = watchClient(base, watched.resource, runtime.ContentTypeJSON); err != nil {
			return nil, err
		}
		if pair.protobuf, err = watchClient(base, watched.resource, runtime.ContentTypeProtobuf); err != nil {
			return nil, err
		}
		pairs = append(pairs, pair)
	}
	return pairs, nil
}

func watchClient(config *rest.Config, resource schema.GroupVersionResource, contentType string) (rest.Interface, error) {
	config = rest.CopyConfig(config)
	version := resource.GroupVersion()
	config.GroupVersion = &version
	config.APIPath = "/apis"
	if version.Group == "" {
		config.APIPath = "/api"
	}
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	config.ContentType = contentType
	config.AcceptContentTypes = contentType
	if contentType == runtime.ContentTypeProtobuf {
		config.AcceptContentTypes += "," + runtime.ContentTypeJSON
	}
	return rest.RESTClientFor(config)
}

func (w *watcher) run(ctx context.Context) {
	for ctx.Err() == nil {
		if w.watchOnce(ctx) {
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryPause):
		}
	}
}

// watchOnce runs one stream to its end. It returns true if the watcher may open the next stream
// without a pause.
func (w *watcher) watchOnce(ctx context.Context) bool {
	start := w.startVersion()
	request := w.client.Get().
		NamespaceIfScoped(w.namespace, w.namespace != "").
		Resource(w.resource.Resource).
		Param("watch", "true").
		Param("allowWatchBookmarks", "true").
		Param("resourceVersion", start)
	if w.selectors.label != "" {
		request.Param("labelSelector", w.selectors.label)
	}
	if w.selectors.field != "" {
		request.Param("fieldSelector", w.selectors.field)
	}
	// No retries inside client-go, because each refusal is counted here.
	stream, err := request.MaxRetries(0).Stream(ctx)
	if err != nil {
		return w.refused(ctx, err)
	}
	defer stream.Close()
	if !w.accepted {
		w.accepted = true
		w.group.started <- struct{}{}
	} else if start != fromTheStart {
		w.group.resumed.Add(1)
	}

	next := jsonFrames(stream)
	if w.format == protobufFormat {
		next = protobufFrames(stream)
	}
	for {
		kind, object, err := next(w.resource)
		switch {
		case ctx.Err() != nil:
			return false
		case errors.Is(err, io.EOF):
			w.group.cleanEnds.Add(1)
			return true
		case err != nil:
			w.group.brokenEnds.Add(1)
			w.group.happenings.add("broken: " + reason(err))
			return false
		}
		if goOn := w.apply(start, kind, object); !goOn {
			return false
		}
	}
}

func (w *watcher) refused(ctx context.Context, err error) bool {
	if ctx.Err() != nil {
		return false
	}
	w.group.refused.Add(1)
	w.group.happenings.add("refused: " + reason(err))
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		w.restart()
	}
	return false
}

func (w *watcher) startVersion() string {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if !w.resumable && len(w.state) > 0 {
		w.forget()
	}
	return w.resourceVersion
}

func (w *watcher) restart() {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.forget()
}

// forget drops all objects, because a new start does not report deletions that were missed.
func (w *watcher) forget() {
	w.group.restarts.Add(1)
	w.state = resourceState{}
	w.resourceVersion = fromTheStart
	w.resumable = false
}

func (w *watcher) initialEventsAreOver() {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.resumable = w.resumable || len(w.state) > 0
}

func (w *watcher) snapshot() resourceState {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return maps.Clone(w.state)
}

func (w *watcher) apply(start string, kind watch.EventType, object runtime.Object) bool {
	if kind == watch.Error {
		w.group.errorEvents.Add(1)
		err := apierrors.FromObject(object)
		w.group.happenings.add("error event: " + err.Error())
		if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			w.restart()
		}
		return false
	}
	accessor, err := meta.Accessor(object)
	if err != nil {
		w.inconsistency("object without metadata: %v", err)
		return false
	}
	version := accessor.GetResourceVersion()
	if olderThan(version, start) {
		w.inconsistency("%s at a resourceVersion before the start of its watch", kind)
	}
	if kind == watch.Bookmark {
		w.group.bookmarks.Add(1)
		w.mutex.Lock()
		w.resourceVersion = version
		w.resumable = true
		w.mutex.Unlock()
		return true
	}
	key, described, err := describe(object)
	if err != nil {
		w.inconsistency("%v", err)
		return false
	}

	w.mutex.Lock()
	defer w.mutex.Unlock()
	known, present := w.state[key]
	switch kind {
	case watch.Added:
		if present && known.UID == described.UID {
			w.inconsistency("ADDED for an object that is there")
		}
		w.state[key] = described
	case watch.Modified:
		if !present {
			w.inconsistency("MODIFIED for an object that isn't there")
		}
		w.state[key] = described
	case watch.Deleted:
		if !present {
			w.inconsistency("DELETED for an object that isn't there")
		}
		delete(w.state, key)
	default:
		w.inconsistency("unknown event type %q", kind)
	}
	// The initial events of a watch from 0 are sorted by name, so the watch resumes from the
	// highest resourceVersion so far.
	if olderThan(w.resourceVersion, version) {
		w.resourceVersion = version
	}
	w.group.seen.seen()
	return true
}

func (w *watcher) inconsistency(format string, arguments ...any) {
	w.group.inconsistent.Add(1)
	w.group.happenings.add("inconsistent: " + fmt.Sprintf(format, arguments...))
}

func olderThan(version, than string) bool {
	left, leftErr := strconv.ParseUint(version, 10, 64)
	right, rightErr := strconv.ParseUint(than, 10, 64)
	return leftErr == nil && rightErr == nil && left < right
}

// frames returns the next event at each call, and io.EOF only if the stream ends between two
// frames.
type frames func(schema.GroupVersionResource) (watch.EventType, runtime.Object, error)

func jsonFrames(stream io.Reader) frames {
	decoder := json.NewDecoder(stream)
	return func(resource schema.GroupVersionResource) (watch.EventType, runtime.Object, error) {
		var event metav1.WatchEvent
		if err := decoder.Decode(&event); err != nil {
			return "", nil, err
		}
		kind := watch.EventType(event.Type)
		if resource == widgets && kind != watch.Error {
			object := &unstructured.Unstructured{}
			return kind, object, object.UnmarshalJSON(event.Object.Raw)
		}
		object, err := decodeTyped(event.Object.Raw)
		return kind, object, err
	}
}

func protobufFrames(stream io.Reader) frames {
	return func(schema.GroupVersionResource) (watch.EventType, runtime.Object, error) {
		var length [4]byte
		if _, err := io.ReadFull(stream, length[:]); err != nil {
			return "", nil, err
		}
		size := binary.BigEndian.Uint32(length[:])
		if size > largestFrame {
			return "", nil, fmt.Errorf("a frame of %d bytes", size)
		}
		frame := make([]byte, size)
		if _, err := io.ReadFull(stream, frame); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return "", nil, err
		}
		var event metav1.WatchEvent
		// The envelope of a frame has no prefix that identifies its encoding, but the object in it
		// has.
		if err := event.Unmarshal(frame); err != nil {
			return "", nil, fmt.Errorf("frame: %w", err)
		}
		if !bytes.HasPrefix(event.Object.Raw, []byte("k8s\x00")) {
			return "", nil, errors.New("a protobuf frame holds an object that is not protobuf")
		}
		object, err := decodeTyped(event.Object.Raw)
		return watch.EventType(event.Type), object, err
	}
}

// decodeTyped decodes an object and removes kind and apiVersion, as typed clients do.
func decodeTyped(encoded []byte) (runtime.Object, error) {
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(encoded, nil, nil)
	if err != nil {
		return nil, err
	}
	if _, isStatus := object.(*metav1.Status); !isStatus {
		object.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	}
	return object, nil
}
