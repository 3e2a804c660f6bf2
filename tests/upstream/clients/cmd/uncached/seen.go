package main

import (
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// seen has what the client knows about its objects, and counts what it does. Each read must show at
// least what the client knows.
type seen struct {
	mutex   sync.Mutex
	objects map[string]lastSeen

	reads, writes, retries int
	// staleReads and errors are texts.
	staleReads, errors []string
}

// lastSeen is the newest version of an object that the client has read or written.
type lastSeen struct {
	version string
	// isOutdated is true if the client knows that the object has changed since, or was deleted.
	isOutdated bool
}

func newSeen() *seen {
	return &seen{objects: map[string]lastSeen{}, staleReads: []string{}, errors: []string{}}
}

// read checks what the client has read.
func (s *seen) read(name, version string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.reads++
	if last, isKnown := s.objects[name]; isKnown {
		order, err := resourceversion.CompareResourceVersion(version, last.version)
		if err != nil || order < 0 || order == 0 && last.isOutdated {
			s.staleReads = append(s.staleReads, fmt.Sprintf("%s at %q after %+v", name, version, last))
			return
		}
	}
	s.objects[name] = lastSeen{version: version}
}

// missed notes a read that found no object, although there was one shortly before. If nothing has
// deleted the object since, the read was stale.
func (s *seen) missed(name string, isDeleted bool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.reads++
	s.retries++
	if !isDeleted {
		s.staleReads = append(s.staleReads, name+" is not found, but exists")
	}
}

// updated notes the answer to an update, and returns its error.
func (s *seen) updated(name, version string, err error) error {
	switch {
	case err == nil:
		s.wrote(name, version)
	case apierrors.IsConflict(err):
		s.outdated(name)
		s.mutex.Lock()
		s.retries++
		s.mutex.Unlock()
	}
	return err
}

func (s *seen) wrote(name, version string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.writes++
	s.objects[name] = lastSeen{version: version}
}

// outdated notes that the object has changed since the client's last read or write, or is gone.
func (s *seen) outdated(name string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	last := s.objects[name]
	last.isOutdated = true
	s.objects[name] = last
}

func (s *seen) failed(err error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.errors = append(s.errors, err.Error())
}
