package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
)

// The keeper listens where metrics are to be had, and every daemon inherits the socket: while one daemon follows
// another, whoever connects waits in the socket's queue instead of being refused, and nobody else gets the address.

// metricsAddress checks the value of --metrics-addr: HOST:PORT, or :PORT or PORT on loopback.
func metricsAddress(value string) (string, error) {
	if !strings.Contains(value, ":") {
		value = ":" + value
	}
	host, port, err := net.SplitHostPort(value)
	if err == nil && port == "" {
		err = errors.New("missing port in address")
	}
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		return "", fmt.Errorf("--metrics-addr %q: use HOST:PORT, or :PORT for this machine only: %w", value, err)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port), nil
}

// listenMetrics listens at an address of metricsAddress. It returns the socket and where it is.
func listenMetrics(address string) (*os.File, string, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, "", fmt.Errorf("--metrics-addr: nothing can be served at %s; choose another address or end what uses it: %w", address, err)
	}
	defer l.Close()
	f, err := l.(*net.TCPListener).File()
	return f, l.Addr().String(), err
}
