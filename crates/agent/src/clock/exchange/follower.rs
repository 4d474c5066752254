//! An agent's questions to the reference clock: some before it says hello, then a few twice a
//! second from a thread of its own, so that the loop never waits for an answer.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::thread::{self, Builder};
use std::time::{Duration, Instant};

use openssl::error::ErrorStack;
use openssl::rand::rand_bytes;

use super::{ClockKey, ExchangeError, packet, signing};
use crate::address::resolve;
use crate::clock;
use crate::clock::estimator::{Estimator, Exchange};
use crate::error::AgentError;

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// An answer that comes later is no use; nothing but a broken network takes so long.
const ANSWER_MAX: Duration = Duration::from_millis(500);
/// Exchanges of the first burst.
const FIRST_BURST: usize = 16;
/// Exchanges of each later one.
const BURST: usize = 8;
/// A burst ends with the exchange that is under way then, however few there were.
const BURST_MAX: Duration = Duration::from_millis(250);
/// Bursts after the first one before the engine says hello, so that the rate is known roughly.
const EARLY_BURSTS: usize = 3;
/// Between two of these.
const EARLY_PAUSE: Duration = Duration::from_millis(250);
/// Between two later ones.
const PAUSE: Duration = Duration::from_millis(500);

/// Makes the time that of the reference clock at an address, and keeps it there.
///
/// # Errors
/// [`ExchangeError`] if key or address is unusable, or if no answer comes; the kernel's error if it
/// cannot start a thread.
pub fn follow(address: &str) -> Result<(), AgentError> {
    let key = ClockKey::from_environment()?;
    let refused = |error| {
        let address = address.to_owned();
        ExchangeError::Address { option: "--reference", address, error }
    };
    let socket = connect(address).map_err(refused)?;
    let mut follower = Follower { socket, key, estimator: Estimator::default() };
    let asked = Instant::now();
    while !follower.burst(FIRST_BURST) {
        if asked.elapsed() >= PATIENCE {
            return Err(ExchangeError::NoAnswer { address: address.to_owned() }.into());
        }
        // A host without a listener reports this at once.
        thread::sleep(EARLY_PAUSE);
    }
    for _ in 0..EARLY_BURSTS {
        thread::sleep(EARLY_PAUSE);
        follower.burst(BURST);
    }
    let exchange_on = move || {
        loop {
            thread::sleep(PAUSE);
            follower.burst(BURST);
        }
    };
    Builder::new().name("exchange".into()).spawn(exchange_on)?;
    Ok(())
}

fn connect(address: &str) -> io::Result<UdpSocket> {
    let reference = resolve(address)?;
    let own: SocketAddr = match reference {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(own)?;
    socket.connect(reference)?;
    socket.set_read_timeout(Some(ANSWER_MAX))?;
    Ok(socket)
}

struct Follower {
    socket: UdpSocket,
    key: ClockKey,
    estimator: Estimator,
}

impl Follower {
    /// Makes up to `exchanges` exchanges in turn. Returns `false` if no answer came: the clock then
    /// keeps its rate, and its bound grows.
    fn burst(&mut self, exchanges: usize) -> bool {
        let begun = Instant::now();
        let turns = (0..exchanges).take_while(|_| begun.elapsed() < BURST_MAX);
        let exchanges: Vec<Exchange> = turns.map_while(|_| self.exchange()).collect();
        self.estimator.add(&exchanges);
        let estimate = self.estimator.estimate().filter(|_| !exchanges.is_empty());
        estimate.map(clock::follow).is_some()
    }

    fn question(&self) -> Result<(packet::Nonce, [u8; packet::BYTES]), ErrorStack> {
        let _signing = signing();
        let mut nonce = packet::Nonce::default();
        rand_bytes(&mut nonce)?;
        Ok((nonce, packet::question(&self.key, &nonce)?))
    }

    fn exchange(&self) -> Option<Exchange> {
        let (nonce, question) = self.question().ok()?;
        let deadline = Instant::now() + ANSWER_MAX;
        let mut bytes = [0; packet::BYTES + 1];
        let asked_ns = clock::host_ns();
        self.socket.send(&question).ok()?;
        loop {
            let length = self.socket.recv(&mut bytes).ok()?;
            let answered_ns = clock::host_ns();
            let answer = {
                let _signing = signing();
                packet::read_answer(&self.key, &nonce, &bytes[..length])
            };
            if let Some((came_ns, left_ns)) = answer {
                return Some(Exchange { asked_ns, came_ns, left_ns, answered_ns });
            }
            // The answer is late, or belongs to another question.
            if Instant::now() > deadline {
                return None;
            }
        }
    }
}
