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

// activity knows when the last event was seen.
type activity struct {
	events atomic.Int64
	last   atomic.Int64
	// Called when settle has seen the quiet time; may be nil.
	settled func()
}

func (a *activity) seen() {
	a.events.Add(1)
	a.last.Store(time.Now().UnixNano())
}

// settle waits until nothing was seen for the quiet time.
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

// answers gives what a command is answered with.
type answers map[string]func(context.Context) (any, error)

// serve reads commands, a line each, and answers each with a line of JSON. It ends
// at quit, at the end of input, or with the context.
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
			return failure(fmt.Errorf("settle wants a number of milliseconds"))
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

// writeLine writes in one call, so that a reader never sees half a line.
func writeLine(out io.Writer, value any) error {
	line, err := json.Marshal(value)
	if err != nil {
		return err
	}
	_, err = out.Write(append(line, '\n'))
	return err
}
