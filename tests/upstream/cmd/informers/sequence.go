package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"
)

// sequence identifies the notifications that a handler has received since its informer has synced,
// in their order. Informers of the same objects have the same sequence if none missed an event.
type sequence struct {
	mutex  sync.Mutex
	events int
	hash   hash.Hash
}

func newSequence() *sequence { return &sequence{hash: sha256.New()} }

func (s *sequence) handler(seen *activity) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(object any, isInInitialList bool) {
			if !isInInitialList {
				s.add(seen, "added", object)
			}
		},
		UpdateFunc: func(_, object any) { s.add(seen, "updated", object) },
		DeleteFunc: func(object any) { s.add(seen, "deleted", object) },
	}
}

func (s *sequence) add(seen *activity, kind string, object any) {
	line := kind + " an object whose last state is not known\n"
	// A deletion that an informer learns of by a LIST has no version of its own.
	if accessor, err := meta.Accessor(object); err == nil {
		line = fmt.Sprintln(kind, accessor.GetNamespace(), accessor.GetName(), accessor.GetUID(), accessor.GetResourceVersion())
	}
	s.mutex.Lock()
	s.events++
	_, _ = s.hash.Write([]byte(line))
	s.mutex.Unlock()
	seen.seen()
}

// identity returns the number of events and a hash of them.
func (s *sequence) identity() sequenceIdentity {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return sequenceIdentity{Events: s.events, Hash: hex.EncodeToString(s.hash.Sum(nil))}
}

type sequenceIdentity struct {
	Events int    `json:"events"`
	Hash   string `json:"hash"`
}
