package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// monitored is a filesystem that has metrics, and says why no client should be sent to it now.
type monitored interface {
	Metrics() prometheus.Gatherer
	Ready() error
}

// metricsServer answers /metrics, /healthz and /readyz for as long as the daemon lives.
type metricsServer struct {
	started  chan struct{} // closed when the two below are set
	fs       monitored
	metrics  http.Handler
	draining atomic.Bool
	server   *http.Server // nil: nobody is to be answered
}

const (
	// metricsConnections bounds the descriptors that may be taken from outside.
	metricsConnections = 32
	metricsTimeout     = 30 * time.Second
	// metricsWait is how long who asks for metrics waits for a daemon that starts.
	metricsWait = 5 * time.Second
)

// startMetrics serves on the socket that the keeper has handed over, if it has.
func startMetrics(cfg *daemonConfig, log *slog.Logger) (*metricsServer, error) {
	m := &metricsServer{started: make(chan struct{})}
	if cfg.MetricsAddr == "" {
		return m, nil
	}
	f := os.NewFile(daemonMetricsFD, "metrics")
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("serving metrics: %w", err)
	}
	m.server = &http.Server{
		Handler: m.handler(), ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		ReadTimeout: metricsTimeout, WriteTimeout: metricsTimeout, IdleTimeout: 2 * metricsTimeout, MaxHeaderBytes: 16 << 10,
	}
	go func() {
		err := m.server.Serve(&limitedListener{Listener: l, free: make(chan struct{}, metricsConnections)})
		if !errors.Is(err, http.ErrServerClosed) {
			log.Error("metrics are not served any more", "err", err)
		}
	}()
	return m, nil
}

// serving says that the mount is served.
func (m *metricsServer) serving(fs filesystem) {
	if f, ok := fs.(monitored); ok {
		m.metrics = promhttp.HandlerFor(f.Metrics(), promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: metricsTimeout})
		m.fs = f
		close(m.started)
	}
}

// drain says that no client should be sent here any more.
func (m *metricsServer) drain() { m.draining.Store(true) }

// end answers who has asked, and nobody any more. It reports whether the filesystem is free of this then.
func (m *metricsServer) end(limit time.Duration) bool {
	if m.server == nil {
		return true
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return m.server.Shutdown(ctx) == nil
}

func (m *metricsServer) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "ckptfs: /metrics, /healthz (the daemon answers), /readyz (clients may come)\n")
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := m.ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		io.WriteString(w, "ok\n")
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-m.started:
			m.metrics.ServeHTTP(w, r)
		case <-r.Context().Done():
		case <-time.After(metricsWait):
			http.Error(w, errStarting.Error(), http.StatusServiceUnavailable)
		}
	})
	return mux
}

var errStarting = errors.New("starting")

func (m *metricsServer) ready() error {
	select {
	case <-m.started:
	default:
		return errStarting
	}
	if m.draining.Load() {
		return errors.New("draining")
	}
	return m.fs.Ready()
}

// limitedListener lets only so many connections be open; others wait in the socket's queue.
type limitedListener struct {
	net.Listener
	free chan struct{}
}

// Accept implements net.Listener.
func (l *limitedListener) Accept() (net.Conn, error) {
	l.free <- struct{}{}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.free
		return nil, err
	}
	return &limitedConn{Conn: c, done: sync.OnceFunc(func() { <-l.free })}, nil
}

type limitedConn struct {
	net.Conn
	done func()
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	defer c.done()
	return c.Conn.Close()
}
