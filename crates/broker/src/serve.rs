//! The broker from bound socket to end: rmqtt set up as a load test needs it, the ready line, and
//! what ends it. It knows rmqtt and tokio, and nothing of the command line.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use rmqtt::context::ServerContext;
use rmqtt::net::{Builder, Listener};
use rmqtt::server::MqttServer;
use rmqtt::shared::DefaultShared;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::counts::Counts;
use crate::directory::Directory;
use crate::exporter;
use crate::gate::{Gate, Undecided};
use crate::host;
use crate::options::Options;
use crate::retained::Retained;
use crate::share::InTurn;
use crate::takeover::Sessions;
use crate::window::Window;

/// Why the broker could not serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {reason:#}")]
    Listen {
        /// Address and port asked for.
        address: SocketAddr,
        /// What the system said.
        reason: rmqtt::Error,
    },
    /// Redis cannot be reached by this program.
    #[error("cannot ask Redis: {0}")]
    Auth(#[from] redis::RedisError),
    /// Signals cannot be handled, or nobody reads the ready line.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl ServeError {
    /// What to do about it, where that is known.
    pub fn hint(&self) -> Option<&'static str> {
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

/// Serves until a signal, or the end of stdin if that is followed.
///
/// # Errors
/// When it cannot listen; once it has said ready, it only ends when told to.
pub async fn serve(options: &Options) -> Result<(), ServeError> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let (listener, port) = listen(options)?;
    let counts = Arc::new(Counts::new());
    let context = context(options, &counts).await?;
    let metrics_port = show_metrics(options, &context, counts).await?;
    let server = MqttServer::new(context).listener_by_id(listener, port).build();
    tokio::spawn(server.run());
    say_ready(port, metrics_port)?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        () = end_of_stdin(options.follow_stdin) => {}
    }
    Ok(())
}

fn say_ready(port: u16, metrics_port: Option<u16>) -> io::Result<()> {
    let (pid, version) = (std::process::id(), env!("CARGO_PKG_VERSION"));
    let more = metrics_port.map(|port| format!(r#","metrics_port":{port}"#)).unwrap_or_default();
    let mut stdout = io::stdout().lock();
    write!(stdout, r#"{{"kind":"ready","port":{port},"pid":{pid},"version":"{version}"{more}}}"#)?;
    stdout.write_all(b"\n")?;
    stdout.flush()
}

/// Counts and shows them from now on, where that is asked for; the port where.
async fn show_metrics(
    options: &Options,
    context: &ServerContext,
    counts: Arc<Counts>,
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

async fn end_of_stdin(followed: bool) {
    if followed {
        let _ = host::stdin_end().await;
    } else {
        std::future::pending::<()>().await;
    }
}

fn listen(options: &Options) -> Result<(Listener, u16), ServeError> {
    let address = SocketAddr::new(options.listen, options.port);
    let bind = || {
        let listener = listener(options, address).bind()?.tcp()?;
        let port = listener.local_addr()?.port();
        Ok((listener, port))
    };
    bind().map_err(|reason| ServeError::Listen { address, reason })
}

fn listener(options: &Options, address: SocketAddr) -> Builder {
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
        .send_timeout(SEND_TIMEOUT)
        .session_expiry_interval(NEVER)
        // Zero is never: a message is sent again on reconnect only [MQTT-4.4.0-1], and expires
        // only if its publisher says so.
        .message_retry_interval(Duration::ZERO)
        .message_expiry_interval(Duration::ZERO)
}

async fn context(options: &Options, counts: &Arc<Counts>) -> Result<ServerContext, ServeError> {
    let context = ServerContext::new()
        // Otherwise clients are refused while the processor is busy, as it is under load.
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
    *context.extends.retain_mut().await = Box::new(Retained::default());
    *context.extends.shared_subscription_mut().await = Box::new(InTurn::default());
    *context.extends.fitter_mgr_mut().await =
        Box::new(Window { max_inflight: options.max_inflight });
    if let Some(info) = options.auth.clone() {
        let directory = Directory::new(info)?;
        let (trusted, counts) = (options.trusted.clone(), counts.clone());
        let gate = Gate { directory, trusted, undecided, counts };
        gate.close(&*context.extends.hook_mgr().register()).await;
    }
    Ok(context)
}

/// Connections the kernel completes before the broker takes them; it caps this at `somaxconn`.
const BACKLOG: i32 = 65_535;
/// CONNECTs being answered at once; more wait in line, none is refused.
const MAX_HANDSHAKES: usize = 10_000;
/// A client that takes no byte for so long is dropped.
const SEND_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest session expiry that MQTT can say: a kept 3.1.1 session has no end of its own.
const NEVER: Duration = Duration::from_secs(u32::MAX as u64);
