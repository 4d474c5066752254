//! The scripted broker behind a TCP listener, plain or under TLS, in a separate thread. Clients
//! that begin with HTTP get a WebSocket.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::thread::JoinHandle;

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};
use openssl::ssl::{Ssl, SslContext, SslRef, SslStream};
use testkit::{Broker, Frames, LinkId, Rng, Script, in_frames};

const LISTENER: Token = Token(0);
const CONTROL: Token = Token(1);

type Order = Box<dyn FnOnce(&mut Server) + Send>;

/// A broker that listens on a free port of loopback until it is dropped.
pub struct Scripted {
    pub port: u16,
    orders: mpsc::Sender<Order>,
    waker: Arc<Waker>,
    thread: Option<JoinHandle<()>>,
}

/// The broker and its connections.
pub struct Server {
    pub broker: Broker,
    poll: Poll,
    links: HashMap<Token, Link>,
    /// TLS of further connections.
    pub tls: Option<SslContext>,
    next_token: usize,
    rng: Rng,
    /// True if the broker does not read bytes from clients.
    pub silent: bool,
}

struct Link {
    stream: Wire,
    id: LinkId,
    /// Bytes that the socket has not accepted.
    unsent: Vec<u8>,
    /// Frames of the client.
    frames: Frames<true>,
}

enum Wire {
    Plain(TcpStream),
    Tls(SslStream<TcpStream>),
}

impl Scripted {
    /// Starts a broker with the script that `script` makes.
    pub fn start(script: fn() -> Script) -> Self {
        Self::start_under(None, script)
    }

    /// Starts a broker, under TLS if there is a context.
    pub fn start_under(tls: Option<SslContext>, script: fn() -> Script) -> Self {
        let mut listener = TcpListener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let port = listener.local_addr().unwrap().port();
        let poll = Poll::new().unwrap();
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE).unwrap();
        let waker = Arc::new(Waker::new(poll.registry(), CONTROL).unwrap());
        let (orders, inbox) = mpsc::channel();
        let serve = move || {
            let broker = Broker::new(script());
            let links = HashMap::new();
            let rng = Rng::new(1);
            let server = Server { broker, poll, links, tls, next_token: 2, rng, silent: false };
            server.run(&listener, &inbox);
        };
        let thread = Some(std::thread::spawn(serve));
        Self { port, orders, waker, thread }
    }

    /// Runs a function on the broker's thread and waits for its result.
    pub fn order<T: Send + 'static>(
        &self,
        act: impl FnOnce(&mut Server) -> T + Send + 'static,
    ) -> T {
        let (sender, result) = mpsc::channel();
        let order: Order = Box::new(move |server| sender.send(act(server)).unwrap());
        self.orders.send(order).unwrap();
        self.waker.wake().unwrap();
        result.recv().unwrap()
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        let (orders, _) = mpsc::channel();
        drop(std::mem::replace(&mut self.orders, orders));
        self.waker.wake().unwrap();
        self.thread.take().map(JoinHandle::join);
    }
}

impl Server {
    /// Cuts every connection.
    pub fn cut_all(&mut self) {
        for (_, link) in self.links.drain() {
            self.broker.cut(link.id);
        }
    }

    /// Number of connections.
    pub fn links(&self) -> usize {
        self.links.len()
    }

    /// Facts of each connection under TLS.
    pub fn secured<T>(&self, fact: impl Fn(&SslRef) -> T) -> Vec<T> {
        let facts = self.links.values().filter_map(|link| match &link.stream {
            Wire::Plain(_) => None,
            Wire::Tls(stream) => Some(fact(stream.ssl())),
        });
        facts.collect()
    }

    /// Number of connections from each address.
    pub fn sources(&mut self) -> HashMap<String, usize> {
        let mut sources = HashMap::new();
        for link in self.links.values() {
            let stream = match &link.stream {
                Wire::Plain(stream) => stream,
                Wire::Tls(stream) => stream.get_ref(),
            };
            let address = stream.peer_addr().unwrap().ip().to_string();
            *sources.entry(address).or_default() += 1;
        }
        sources
    }

    fn run(mut self, listener: &TcpListener, inbox: &Receiver<Order>) {
        let mut events = Events::with_capacity(256);
        loop {
            if let Err(error) = self.poll.poll(&mut events, None) {
                assert_eq!(error.kind(), ErrorKind::Interrupted);
            }
            for event in &events {
                match event.token() {
                    LISTENER => self.accept(listener),
                    CONTROL => {}
                    token => self.read(token),
                }
            }
            loop {
                match inbox.try_recv() {
                    Ok(order) => order(&mut self),
                    Err(mpsc::TryRecvError::Empty) => break,
                    Err(mpsc::TryRecvError::Disconnected) => return,
                }
            }
            self.write();
        }
    }

    fn accept(&mut self, listener: &TcpListener) {
        while let Ok((mut stream, _)) = listener.accept() {
            let token = Token(self.next_token);
            self.next_token += 1;
            let interest = Interest::READABLE | Interest::WRITABLE;
            self.poll.registry().register(&mut stream, token, interest).unwrap();
            let stream = match &self.tls {
                None => Wire::Plain(stream),
                Some(context) => {
                    let mut ssl = Ssl::new(context).unwrap();
                    ssl.set_accept_state();
                    Wire::Tls(SslStream::new(ssl, stream).unwrap())
                }
            };
            let (unsent, frames) = (Vec::new(), Frames::New);
            let link = Link { stream, id: self.broker.open(), unsent, frames };
            self.links.insert(token, link);
        }
    }

    fn read(&mut self, token: Token) {
        let mut buffer = [0; 4096];
        while let (Some(link), false) = (self.links.get_mut(&token), self.silent) {
            match link.stream.read(&mut buffer) {
                Ok(count) if count > 0 => {
                    let bytes = link.frames.take(&buffer[..count], &mut link.unsent);
                    // A violation by a client closes its link, which the test then detects.
                    let _ = self.broker.receive(link.id, &bytes);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                _ => {
                    self.broker.cut(link.id);
                    self.links.remove(&token);
                }
            }
        }
    }

    fn write(&mut self) {
        let Self { broker, links, rng, .. } = self;
        links.retain(|_, link| {
            let output = broker.take_output(link.id);
            if link.frames.are_open() && !output.is_empty() {
                link.unsent.extend_from_slice(&in_frames(&output, rng));
            } else {
                link.unsent.extend_from_slice(&output);
            }
            link.flush().is_ok() && (broker.is_open(link.id) || !link.unsent.is_empty())
        });
    }
}

impl Link {
    fn flush(&mut self) -> io::Result<()> {
        while !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(count) => drop(self.unsent.drain(..count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Wire {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(buffer),
            Self::Tls(stream) => stream.read(buffer),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }
}
