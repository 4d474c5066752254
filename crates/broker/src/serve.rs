//! The broker from bound socket to end: rmqtt configured for load tests, the ready line, and the
//! events that end the broker.

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use agent::error::AgentError;
use agent::hint::Hint;
use agent::pipes;
use async_trait::async_trait;
use rmqtt::context::ServerContext;
use rmqtt::net::{Builder, Listener, MqttError};
use rmqtt::retain::{DefaultRetainStorage, RetainStorage};
use rmqtt::router::DefaultRouter;
use rmqtt::server::MqttServer;
use rmqtt::shared::DefaultShared;
use rmqtt::types::{Retain, TopicFilter, TopicName};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use crate::counts::BrokerCounts;
use crate::directory::Directory;
use crate::exporter;
use crate::gate::{Gate, Undecided};
use crate::options::BrokerOptions;
use crate::quic;
use crate::routes::Routes;
use crate::shared_subscriptions::InTurn;
use crate::takeover::Sessions;
use crate::window::WindowBound;

/// A reason why the broker could not serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The broker cannot listen on the address.
    #[error("cannot listen on {address}: {reason:#}")]
    Listen {
        /// Address and port asked for.
        address: SocketAddr,
        /// The error of the system.
        reason: rmqtt::Error,
    },
    /// This program cannot reach Redis.
    #[error("cannot ask Redis: {0}")]
    Auth(#[from] redis::RedisError),
    /// The broker cannot handle signals.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Stdout is closed.
    #[error(transparent)]
    Agent(#[from] AgentError),
}

impl Hint for ServeError {
    fn hint(&self) -> Option<&'static str> {
        let Self::Listen { reason, .. } = self else { return None };
        match reason.downcast_ref::<io::Error>()?.kind() {
            io::ErrorKind::AddrInUse => {
                Some("another process listens there: end it, or take a free port with --port 0")
            }
            io::ErrorKind::AddrNotAvailable => {
                Some("this machine does not have the address: see --listen")
            }
            io::ErrorKind::PermissionDenied => Some("ports below 1024 are for root: see --port"),
            _ => None,
        }
    }
}

/// Serves until a signal, or until the end of stdin with `--follow-stdin`.
///
/// # Errors
/// [`ServeError`], before the ready line.
pub async fn serve(options: &BrokerOptions) -> Result<(), ServeError> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let (listener, port) = listen(options, options.port, Listener::tcp)?;
    let websocket = options.websocket_port.map(|port| listen(options, port, Listener::ws));
    let websocket = websocket.transpose()?;
    let counts = Arc::new(BrokerCounts::new());
    let context = context(options, &counts).await?;
    let to = SocketAddr::new(options.listen, port);
    let quic_port = options.quic().map(|quic| {
        let listening = quic::listen(&quic, to);
        listening.map_err(|reason| ServeError::Listen { address: quic.address, reason })
    });
    let quic_port = quic_port.transpose()?;
    let metrics_port = show_metrics(options, &context, counts).await?;
    let mut ports = vec![("metrics_port", metrics_port), ("quic_port", quic_port)];
    let mut server = MqttServer::new(context).listener_by_id(listener, port);
    if let Some((listener, port)) = websocket {
        server = server.listener_by_id(listener, port);
        ports.push(("websocket_port", Some(port)));
    }
    tokio::spawn(server.build().run());
    say_ready(port, &ports)?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        ended = end_of_stdin(options.follow_stdin) => ended?,
    }
    Ok(())
}

/// Writes the ready line; `more` are the names of further ports.
fn say_ready(port: u16, more: &[(&str, Option<u16>)]) -> Result<(), ServeError> {
    let (pid, version) = (std::process::id(), env!("CARGO_PKG_VERSION"));
    let named = more.iter().filter_map(|(name, port)| Some((name, (*port)?)));
    let more: String = named.map(|(name, port)| format!(r#","{name}":{port}"#)).collect();
    Ok(pipes::write_text(&format!(
        r#"{{"kind":"ready","port":{port},"pid":{pid},"version":"{version}"{more}}}"#
    ))?)
}

/// Starts counters and exporter with `--metrics-port`; returns the port.
async fn show_metrics(
    options: &BrokerOptions,
    context: &ServerContext,
    counts: Arc<BrokerCounts>,
) -> Result<Option<u16>, ServeError> {
    let Some(port) = options.metrics_port else { return Ok(None) };
    let address = SocketAddr::new(options.listen, port);
    let listener = TcpListener::bind(address).await;
    let listener =
        listener.map_err(|error| ServeError::Listen { address, reason: error.into() })?;
    let port = listener.local_addr()?.port();
    exporter::count(&counts, &*context.extends.hook_mgr().register()).await;
    tokio::spawn(exporter::export(listener, context.clone(), counts));
    Ok(Some(port))
}

/// Resolves when stdin ends, if it is `followed`.
async fn end_of_stdin(followed: bool) -> io::Result<()> {
    if !followed {
        return std::future::pending().await;
    }
    let (open, end) = oneshot::channel::<()>();
    pipes::read_lines(|_| true, move || drop(open))?;
    let _ = end.await;
    Ok(())
}

/// Listens on a port; `serve` turns the listener into one of TCP or WebSocket.
fn listen(
    options: &BrokerOptions,
    port: u16,
    serve: fn(Listener) -> rmqtt::Result<Listener>,
) -> Result<(Listener, u16), ServeError> {
    let address = SocketAddr::new(options.listen, port);
    let bind = || {
        let listener = serve(listener(options, address).bind()?)?;
        let port = listener.local_addr()?.port();
        Ok((listener, port))
    };
    bind().map_err(|reason| ServeError::Listen { address, reason })
}

fn listener(options: &BrokerOptions, address: SocketAddr) -> Builder {
    Builder::new()
        .name("pubstorm")
        .laddr(address)
        .allow_anonymous(options.auth.is_none())
        .reuseaddr(Some(true))
        .backlog(BACKLOG)
        .nodelay(true)
        // MQTT has its own keep-alive.
        .tcp_keepalive(false)
        .max_handshaking_limit(MAX_HANDSHAKES)
        .max_packet_size(options.max_packet_size.get())
        .max_mqueue_len(options.max_queued.get() as usize)
        .max_inflight(NonZeroU16::MAX)
        .max_topic_aliases(u16::MAX)
        .max_topic_levels(TOPIC_LEVELS_MAX)
        .send_timeout(SEND_TIMEOUT)
        .session_expiry_interval(NEVER)
        // Zero is never: the broker sends a message again on reconnect only [MQTT-4.4.0-1], and
        // a message expires only by the publisher's setting.
        .message_retry_interval(Duration::ZERO)
        .message_expiry_interval(Duration::ZERO)
}

async fn context(
    options: &BrokerOptions,
    counts: &Arc<BrokerCounts>,
) -> Result<ServerContext, ServeError> {
    let context = ServerContext::new()
        // Otherwise rmqtt refuses clients while the processor is busy, as under load.
        .busy_check_enable(false)
        .mqtt_max_sessions(options.max_connections as isize)
        .build()
        .await;
    let undecided = Arc::<Undecided>::default();
    *context.extends.shared_mut().await = Box::new(Sessions {
        table: DefaultShared::new(Some(context.clone())),
        undecided: undecided.clone(),
        counts: counts.clone(),
    });
    let router = DefaultRouter::new(Some(context.clone()));
    *context.extends.router_mut().await = Box::new(Routes::new(router));
    *context.extends.retain_mut().await = Box::new(Retained::default());
    *context.extends.shared_subscription_mut().await = Box::new(InTurn::default());
    *context.extends.fitter_mgr_mut().await =
        Box::new(WindowBound { max_inflight: options.max_inflight });
    if let Some(info) = options.auth.clone() {
        let directory = Directory::new(info)?;
        let (trusted, counts) = (options.trusted.clone(), counts.clone());
        let gate = Gate { directory, trusted, undecided, counts };
        gate.close(&*context.extends.hook_mgr().register()).await;
    }
    Ok(context)
}

/// All retained messages of the broker, in memory and without a limit. rmqtt carries the tree, but
/// its default storage is off in favour of a plugin that writes to disk.
#[derive(Default)]
struct Retained {
    tree: DefaultRetainStorage,
}

#[async_trait]
impl RetainStorage for Retained {
    fn enable(&self) -> bool {
        true
    }

    /// An empty payload removes the topic's message [MQTT-3.3.1-10].
    async fn set(
        &self,
        topic: &TopicName,
        retain: Retain,
        expiry: Option<Duration>,
    ) -> rmqtt::Result<()> {
        if topic.split('/').count() > TOPIC_LEVELS_MAX {
            return Err(MqttError::TooManyTopicLevels.into());
        }
        // Zero means "never" in rmqtt, but "expired" in the tree.
        let expiry = expiry.filter(|expiry| !expiry.is_zero());
        self.tree.set_with_timeout(topic, retain, expiry).await
    }

    async fn get(&self, filter: &TopicFilter) -> rmqtt::Result<Vec<(TopicName, Retain)>> {
        self.tree.get_message(filter).await
    }

    async fn count(&self) -> isize {
        self.tree.count().await
    }

    async fn max(&self) -> isize {
        self.tree.max().await
    }
}

/// Connections that the kernel completes before the broker accepts them, up to `somaxconn`.
const BACKLOG: i32 = 65_535;
/// CONNECTs answered at the same time; further ones wait.
const MAX_HANDSHAKES: usize = 10_000;
/// Levels of a filter, and of the topic of a retained message. The trees of rmqtt are recursive:
/// 6,000 levels overflow the stack of a thread, which ends the broker.
const TOPIC_LEVELS_MAX: usize = 1_000;
/// The broker drops a client that takes no byte for this time.
const SEND_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest session expiry of MQTT: a kept 3.1.1 session does not expire.
const NEVER: Duration = Duration::from_secs(u32::MAX as u64);
