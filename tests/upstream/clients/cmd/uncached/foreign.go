package main

import (
	"math/rand/v2"
	"time"
)

// foreignPause is the mean pause between two foreign writes. The pauses are random, because a client
// whose attempts take longer than a regular pause would have a conflict at each of them.
const foreignPause = time.Second / 50

// foreignWriter writes until it is stopped, or has written often enough.
type foreignWriter struct {
	stopping chan struct{}
	ended    chan error
	// writes is for use after the end.
	writes int
}

// startForeignWriter calls write with the numbers 1, 2 and so on, up to most unless that is 0.
func startForeignWriter(most int, write func(number int) error) *foreignWriter {
	writer := &foreignWriter{stopping: make(chan struct{}), ended: make(chan error, 1)}
	go func() { writer.ended <- writer.run(most, write) }()
	return writer
}

func (w *foreignWriter) run(most int, write func(number int) error) error {
	due := time.Now()
	for most == 0 || w.writes < most {
		due = due.Add(time.Duration(rand.ExpFloat64() * float64(foreignPause)))
		select {
		case <-w.stopping:
			return nil
		case <-time.After(time.Until(due)):
		}
		if err := write(w.writes + 1); err != nil {
			return err
		}
		w.writes++
	}
	return nil
}

// stop waits for the last write.
func (w *foreignWriter) stop() error {
	close(w.stopping)
	return <-w.ended
}

// wait waits until the writer has written often enough.
func (w *foreignWriter) wait() error { return <-w.ended }
