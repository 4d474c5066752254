//! The in-flight windows of a client. rmqtt has one setting for both directions, and ends a 3.1.1
//! client with more QoS 2 messages in flight. Here the setting bounds the messages towards the
//! client; only the protocol bounds the messages from the client.

use std::num::{NonZeroU16, NonZeroU32};
use std::sync::Arc;
use std::time::Duration;

use rmqtt::Result;
use rmqtt::codec::types::Publish;
use rmqtt::fitter::{DefaultFitter, Fitter, FitterManager};
use rmqtt::types::{ConnectInfo, Disconnect, FitterType, Id, ListenerConfig};

/// Gives each client a window of at most this many messages towards it.
pub struct WindowBound {
    /// Unacknowledged QoS 1 and 2 messages towards one client.
    pub max_inflight: NonZeroU16,
}

impl FitterManager for WindowBound {
    fn create(&self, client: Arc<ConnectInfo>, id: Id, listener: ListenerConfig) -> FitterType {
        let rest = DefaultFitter::new(client, id, listener);
        Arc::new(ClientWindow { max_inflight: rest.max_inflight().min(self.max_inflight), rest })
    }
}

/// Limits of one client; all but the window are rmqtt's own.
struct ClientWindow {
    max_inflight: NonZeroU16,
    rest: DefaultFitter,
}

impl Fitter for ClientWindow {
    fn max_inflight(&self) -> NonZeroU16 {
        self.max_inflight
    }

    fn keep_alive(&self, keep_alive: &mut u16) -> Result<u16> {
        self.rest.keep_alive(keep_alive)
    }

    fn max_mqueue_len(&self) -> usize {
        self.rest.max_mqueue_len()
    }

    fn mqueue_rate_limit(&self) -> (NonZeroU32, Duration) {
        self.rest.mqueue_rate_limit()
    }

    fn session_expiry_interval(&self, disconnect: Option<&Disconnect>) -> Duration {
        self.rest.session_expiry_interval(disconnect)
    }

    fn message_expiry_interval(&self, publish: &Publish) -> Duration {
        self.rest.message_expiry_interval(publish)
    }

    fn max_client_topic_aliases(&self) -> u16 {
        self.rest.max_client_topic_aliases()
    }

    fn max_server_topic_aliases(&self) -> u16 {
        self.rest.max_server_topic_aliases()
    }
}
