//! The counters over HTTP, at `/metrics`. rmqtt itself counts two of them.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::CONTENT_TYPE;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rmqtt::context::ServerContext;
use rmqtt::hook::{Handler, HookResult, Parameter, Register, ReturnType, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

use crate::counts::BrokerCounts;

/// Registers the counters of connections and deliveries with rmqtt.
pub async fn count(counts: &Arc<BrokerCounts>, register: &dyn Register) {
    for event in [Type::ClientConnected, Type::MessageDelivered] {
        register.add(event, Box::new(Counting(counts.clone()))).await;
    }
    register.start().await;
}

/// Answers readers until the process ends.
pub async fn export(listener: TcpListener, context: ServerContext, counts: Arc<BrokerCounts>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(answer(stream, context.clone(), counts.clone()));
            }
            Err(error) => {
                log::warn!("cannot accept a reader of metrics: {error}");
                sleep(PAUSE).await;
            }
        }
    }
}

async fn answer(stream: TcpStream, context: ServerContext, counts: Arc<BrokerCounts>) {
    let service = service_fn(|request: Request<Incoming>| {
        let (context, counts) = (context.clone(), counts.clone());
        async move { Ok::<_, Infallible>(page(request.uri().path(), &context, &counts).await) }
    });
    let answering = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    match timeout(READER_MAX, answering).await {
        Ok(Ok(())) | Err(_) => {}
        Ok(Err(error)) => log::debug!("a reader of metrics: {error}"),
    }
}

async fn page(path: &str, context: &ServerContext, counts: &BrokerCounts) -> Response<Full<Bytes>> {
    if path != PATH {
        let mut missing = Response::new(Full::from(format!("see {PATH}\n")));
        *missing.status_mut() = StatusCode::NOT_FOUND;
        return missing;
    }
    counts.connections.set(context.connections.count() as i64);
    counts.subscriptions.set(context.extends.router().await.routes().count() as i64);
    let mut found = Response::new(Full::from(counts.text()));
    found.headers_mut().insert(CONTENT_TYPE, TEXT.parse().expect("a header's value"));
    found
}

struct Counting(Arc<BrokerCounts>);

#[async_trait]
impl Handler for Counting {
    async fn hook(&self, event: &Parameter, so_far: Option<HookResult>) -> ReturnType {
        match event {
            Parameter::ClientConnected(_) => self.0.connected.inc(),
            Parameter::MessageDelivered(..) => self.0.sent.inc(),
            _ => {}
        }
        (true, so_far)
    }
}

const PATH: &str = "/metrics";
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Longest time of a connection.
const READER_MAX: Duration = Duration::from_secs(60);
/// Pause after a failed accept.
const PAUSE: Duration = Duration::from_millis(100);
