package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const settleLimit = time.Minute

// activity counts events, and records the time of the last one.
type activity struct {
	events atomic.Int64
	last   atomic.Int64
	// settled is called when settle succeeds; it may be nil.
	settled func()
}

func (a *activity) seen() {
	a.events.Add(1)
	a.last.Store(time.Now().UnixNano())
}

// settle waits until there was no event for the quiet time; false if that does not happen within a
// minute.
func (a *activity) settle(ctx context.Context, quiet time.Duration) bool {
	start := time.Now()
	for time.Since(start) < settleLimit+quiet {
		last := time.Unix(0, max(a.last.Load(), start.UnixNano()))
		left := quiet - time.Since(last)
		if left <= 0 {
			if a.settled != nil {
				a.settled()
			}
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(left):
		}
	}
	return false
}

// answers maps each command to the function that answers it.
type answers map[string]func(context.Context) (any, error)

// serve reads one command per line from stdin, and answers each with one line of JSON. It returns
// after quit, at the end of input, or when the context ends.
func serve(ctx context.Context, seen *activity, known answers) error {
	lines := make(chan string)
	go func() {
		defer close(lines)
		scanner := bufio.NewScanner(os.Stdin)
		for scanner.Scan() {
			lines <- strings.TrimSpace(scanner.Text())
		}
	}()
	for {
		var line string
		var more bool
		select {
		case <-ctx.Done():
			return nil
		case line, more = <-lines:
		}
		if !more || line == "quit" {
			return nil
		}
		if line == "" {
			continue
		}
		if err := writeLine(os.Stdout, answer(ctx, line, seen, known)); err != nil {
			return err
		}
	}
}

func answer(ctx context.Context, line string, seen *activity, known answers) any {
	command, argument, _ := strings.Cut(line, " ")
	if command == "settle" {
		milliseconds, err := strconv.Atoi(argument)
		if err != nil || milliseconds < 0 {
			return failure(fmt.Errorf("settle needs a number of milliseconds"))
		}
		settled := seen.settle(ctx, time.Duration(milliseconds)*time.Millisecond)
		return map[string]any{"settled": settled, "events": seen.events.Load()}
	}
	handler, ok := known[command]
	if !ok {
		return failure(fmt.Errorf("unknown command %q", command))
	}
	value, err := handler(ctx)
	if err != nil {
		return failure(err)
	}
	return value
}

func failure(err error) any { return map[string]string{"error": err.Error()} }

// writeLine writes a value as JSON with one call of Write, so that a reader never gets half a line.
func writeLine(out io.Writer, value any) error {
	line, err := json.Marshal(value)
	if err != nil {
		return err
	}
	_, err = out.Write(append(line, '\n'))
	return err
}
