package main

import (
	"fmt"
	"net/http"
	"strconv"
	"time"
)

const (
	logLines    = 10
	logInterval = 100 * time.Millisecond
)

// logStart is a fixed time, so that two requests for the same log return the same bytes.
var logStart = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// serveLogs answers with `line 1` to `line 10`. With follow=true it sends another line every 100 ms
// until the client disconnects.
func serveLogs(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	if query.Get("previous") == "true" {
		http.Error(w, fmt.Sprintf("previous terminated container %q in pod %q not found", r.PathValue("container"), r.PathValue("pod")), http.StatusBadRequest)
		return
	}
	first := 1
	if text := query.Get("tailLines"); text != "" {
		tail, err := strconv.Atoi(text)
		if err != nil || tail < 0 {
			http.Error(w, "tailLines must be a number of lines", http.StatusBadRequest)
			return
		}
		first = max(1, logLines-tail+1)
	}
	limit := -1
	if text := query.Get("limitBytes"); text != "" {
		bytes, err := strconv.Atoi(text)
		if err != nil || bytes < 1 {
			http.Error(w, "limitBytes must be a number of bytes", http.StatusBadRequest)
			return
		}
		limit = bytes
	}

	write := func(number int) bool {
		line := fmt.Sprintf("line %d of %s/%s/%s\n", number, r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("container"))
		if query.Get("timestamps") == "true" {
			line = logStart.Add(time.Duration(number)*logInterval).Format(time.RFC3339Nano) + " " + line
		}
		if limit >= 0 {
			line = line[:min(len(line), limit)]
			limit -= len(line)
		}
		_, err := w.Write([]byte(line))
		return err == nil && limit != 0
	}
	more := true
	for number := first; number <= logLines && more; number++ {
		more = write(number)
	}
	if query.Get("follow") != "true" {
		return
	}
	flush := http.NewResponseController(w)
	ticker := time.NewTicker(logInterval)
	defer ticker.Stop()
	for number := logLines + 1; more; number++ {
		if flush.Flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-ticker.C:
			more = write(number)
		}
	}
}
