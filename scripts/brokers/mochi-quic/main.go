// A broker over QUIC that shares no code with Pubstorm: Mochi, with a listener of quic-go. Each
// connection has one stream of MQTT. The program ends when its standard input does.
package main

import (
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync/atomic"
	"time"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/hooks/auth"
	"github.com/mochi-mqtt/server/v2/listeners"
	"github.com/quic-go/quic-go"
)

// Time for the last bytes of a client that the broker has closed.
const lastBytes = 2 * time.Second

// A listener of Mochi.
type listener struct {
	quic     *quic.EarlyListener
	isClosed atomic.Bool
}

// A connection as Mochi has it: its stream, which has no addresses of its own.
type connection struct {
	*quic.Stream
	quic *quic.Conn
	// Address of the client at the last read.
	last string
}

func main() {
	address := flag.String("address", "127.0.0.1:0", "address and port of UDP")
	certificate := flag.String("certificate", "", "file of the certificate chain (PEM)")
	key := flag.String("key", "", "file of the private key (PEM)")
	idle := flag.Duration("idle-timeout", time.Hour, "time without a packet that ends a connection")
	flag.Parse()
	if err := serve(*address, *certificate, *key, *idle); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func serve(address, certificate, key string, idle time.Duration) error {
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		return err
	}
	security := &tls.Config{
		Certificates: []tls.Certificate{pair},
		NextProtos:   []string{"mqtt"},
		MinVersion:   tls.VersionTLS13,
	}
	settings := &quic.Config{
		Allow0RTT:             true,
		MaxIdleTimeout:        idle,
		MaxIncomingStreams:    1,
		MaxIncomingUniStreams: -1,
	}
	listening, err := quic.ListenAddrEarly(address, security, settings)
	if err != nil {
		return err
	}
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	server := mqtt.New(&mqtt.Options{Logger: quiet})
	if err := server.AddHook(new(auth.AllowHook), nil); err != nil {
		return err
	}
	if err := server.AddListener(&listener{quic: listening}); err != nil {
		return err
	}
	if err := server.Serve(); err != nil {
		return err
	}
	fmt.Println(listening.Addr().(*net.UDPAddr).Port)
	_, _ = io.Copy(io.Discard, os.Stdin)
	return server.Close()
}

func (l *listener) Init(*slog.Logger) error { return nil }
func (l *listener) ID() string              { return "quic" }
func (l *listener) Address() string         { return l.quic.Addr().String() }
func (l *listener) Protocol() string        { return "quic" }

func (l *listener) Close(closeClients listeners.CloseFn) {
	if l.isClosed.CompareAndSwap(false, true) {
		closeClients(l.ID())
		_ = l.quic.Close()
	}
}

func (l *listener) Serve(establish listeners.EstablishFn) {
	for {
		accepted, err := l.quic.Accept(context.Background())
		if err != nil {
			return
		}
		go func() {
			stream, err := accepted.AcceptStream(context.Background())
			if err == nil {
				last := accepted.RemoteAddr().String()
				_ = establish(l.ID(), &connection{stream, accepted, last})
			}
		}()
	}
}

func (c *connection) LocalAddr() net.Addr  { return c.quic.LocalAddr() }
func (c *connection) RemoteAddr() net.Addr { return c.quic.RemoteAddr() }

// Read reads from the stream, and prints a line when the client has another address than before.
func (c *connection) Read(bytes []byte) (int, error) {
	count, err := c.Stream.Read(bytes)
	if now := c.quic.RemoteAddr().String(); now != c.last {
		fmt.Println("migrated", c.last, now)
		c.last = now
	}
	return count, err
}

// Close ends both sides of the stream, and the connection when the client has had time for the
// last bytes.
func (c *connection) Close() error {
	c.Stream.CancelRead(0)
	err := c.Stream.Close()
	go func() {
		select {
		case <-c.quic.Context().Done():
		case <-time.After(lastBytes):
			_ = c.quic.CloseWithError(0, "")
		}
	}()
	return err
}
