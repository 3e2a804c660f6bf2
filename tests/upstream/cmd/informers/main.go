// Command informers is a client-go program for tests. It reads a server as controllers do, and
// reports what it received in one line of JSON per command.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer cancel()

	command, arguments := "run", os.Args[1:]
	if len(arguments) > 0 && !strings.HasPrefix(arguments[0], "-") {
		command, arguments = arguments[0], arguments[1:]
	}
	var err error
	switch command {
	case "run":
		err = runInformers(ctx, arguments)
	case "list":
		err = runList(ctx, arguments)
	case "churn":
		err = runChurn(ctx, arguments)
	case "herd":
		err = runHerd(ctx, arguments)
	case "watchers":
		err = runWatchers(ctx, arguments)
	case "probe":
		err = runProbe(ctx, arguments)
	case "restarts":
		err = runRestarts(ctx, arguments)
	default:
		err = fmt.Errorf("unknown command %q: use run, list, churn, herd, watchers, probe or restarts", command)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "informers:", err)
		os.Exit(1)
	}
}
