package main

import (
	"net/http"
	"net/url"
	"time"

	upgrade "k8s.io/apimachinery/pkg/util/proxy"
	translator "k8s.io/apiserver/pkg/util/proxy"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/streaming/pkg/httpstream/wsstream"
)

const (
	streamIdleTimeout     = time.Hour
	streamCreationTimeout = remotecommand.DefaultStreamCreationTimeout
)

// runtimeHandler serves exec, attach and port-forward over SPDY and over the WebSocket protocols up
// to version 4, as a container runtime does.
func runtimeHandler(runtime *podRuntime) *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("/exec/{namespace}/{pod}/{container}", func(w http.ResponseWriter, r *http.Request) {
		streams, err := remotecommand.NewOptions(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		remotecommand.ServeExec(w, r, runtime, podOf(r), "", r.PathValue("container"), r.URL.Query()["command"],
			streams, streamIdleTimeout, streamCreationTimeout, remotecommand.SupportedStreamingProtocols)
	})
	mux.HandleFunc("/attach/{namespace}/{pod}/{container}", func(w http.ResponseWriter, r *http.Request) {
		streams, err := remotecommand.NewOptions(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		remotecommand.ServeAttach(w, r, runtime, podOf(r), "", r.PathValue("container"),
			streams, streamIdleTimeout, streamCreationTimeout, remotecommand.SupportedStreamingProtocols)
	})
	mux.HandleFunc("/portForward/{namespace}/{pod}", func(w http.ResponseWriter, r *http.Request) {
		ports, err := portforward.NewV4Options(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		portforward.ServePortForward(w, r, runtime, podOf(r), "", ports,
			streamIdleTimeout, streamCreationTimeout, portforward.SupportedProtocols)
	})
	return mux
}

// kubeletHandler adds a kubelet's endpoints to those of the runtime: logs, and the newer WebSocket
// protocols. The API server forwards these protocols without translation to a node whose
// status.declaredFeatures contains ExtendWebSocketsToKubelet.
func kubeletHandler(runtime *podRuntime, runtimeAddress string) http.Handler {
	streaming := runtimeHandler(runtime)
	translated := func(w http.ResponseWriter, r *http.Request) {
		if !wsstream.IsWebSocketRequestWithStreamCloseProtocol(r) {
			streaming.ServeHTTP(w, r)
			return
		}
		streams, err := remotecommand.NewOptions(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		translator.NewStreamTranslatorHandler(runtimeURL(runtimeAddress, r), nil, 0, translator.Options{
			Stdin: streams.Stdin, Stdout: streams.Stdout, Stderr: streams.Stderr, Tty: streams.TTY,
		}).ServeHTTP(w, r)
	}
	tunneled := func(w http.ResponseWriter, r *http.Request) {
		if !wsstream.IsWebSocketRequestWithTunnelingProtocol(r) {
			streaming.ServeHTTP(w, r)
			return
		}
		spdy := upgrade.NewUpgradeAwareHandler(runtimeURL(runtimeAddress, r), nil, false, true, responder{})
		translator.NewTunnelingHandler(spdy).ServeHTTP(w, r)
	}

	mux := http.NewServeMux()
	mux.HandleFunc("/exec/{namespace}/{pod}/{container}", translated)
	mux.HandleFunc("/attach/{namespace}/{pod}/{container}", translated)
	mux.HandleFunc("/portForward/{namespace}/{pod}", tunneled)
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", serveLogs)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) })
	return mux
}

func podOf(r *http.Request) string {
	return r.PathValue("namespace") + "/" + r.PathValue("pod")
}

func runtimeURL(address string, r *http.Request) *url.URL {
	return &url.URL{Scheme: "http", Host: address, Path: r.URL.Path, RawQuery: r.URL.RawQuery}
}

type responder struct{}

func (responder) Error(w http.ResponseWriter, _ *http.Request, err error) {
	http.Error(w, err.Error(), http.StatusInternalServerError)
}
