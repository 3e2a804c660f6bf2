// Command stub-kubelet replaces a kubelet in tests. It answers the requests that the API server
// proxies to a node (logs, exec, attach, port-forward), so that these subresources can be tested
// without containers. exec really runs its command on this machine, with the permissions of this
// process.
package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

type options struct {
	listen           string
	certFile         string
	keyFile          string
	exitOnStdinClose bool
}

func main() {
	var o options
	flag.StringVar(&o.listen, "listen", "127.0.0.1:0", "address to listen on")
	flag.StringVar(&o.certFile, "tls-cert-file", "", "serving certificate; a self-signed one if empty")
	flag.StringVar(&o.keyFile, "tls-private-key-file", "", "private key of --tls-cert-file")
	flag.BoolVar(&o.exitOnStdinClose, "exit-on-stdin-close", false, "exit when stdin is closed")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "stub-kubelet:", err)
		os.Exit(1)
	}
}

func run(o options) error {
	stop, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer cancel()
	if o.exitOnStdinClose {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			cancel()
		}()
	}

	certificate, err := servingCertificate(o.certFile, o.keyFile)
	if err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "stub-kubelet-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	runtime := newPodRuntime(scratch)
	defer runtime.killAll()

	// A listener with plain HTTP that only this process uses. It plays the container runtime, for
	// which a kubelet translates the newer WebSocket protocols.
	runtimeListener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", o.listen)
	if err != nil {
		return err
	}

	runtimeServer := &http.Server{Handler: runtimeHandler(runtime)}
	server := &http.Server{
		Handler:   kubeletHandler(runtime, runtimeListener.Addr().String()),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}},
	}
	failed := make(chan error, 2)
	go func() { failed <- runtimeServer.Serve(runtimeListener) }()
	go func() { failed <- server.ServeTLS(listener, "", "") }()
	fmt.Println("listening", listener.Addr())

	select {
	case <-stop.Done():
		return errors.Join(server.Close(), runtimeServer.Close())
	case err := <-failed:
		return err
	}
}

func servingCertificate(certFile, keyFile string) (tls.Certificate, error) {
	if certFile != "" || keyFile != "" {
		return tls.LoadX509KeyPair(certFile, keyFile)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "stub-kubelet"},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().AddDate(1, 0, 0),
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
